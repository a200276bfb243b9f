#pragma once
// Nothing of this header is used; see gloo_stub/gloo/context.h.
