// Loops over elements that the compiler turns into vectors, once for each instruction set; the
// machine's own is chosen when the program is loaded. A file that uses it is compiled as
// cmake/LockstepBuild.cmake says: -O3, and without contracting a product and a sum into one
// rounding, so that an element's bits depend neither on its place in a vector nor on the
// instruction set.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define LS_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LS_VECTOR_CLONES
#endif
#define LS_INTO_CLONES [[gnu::always_inline]] inline
