#pragma once
// Nothing of this header is used; see stub/gloo/context.h.
