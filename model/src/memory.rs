//! Asking the C library to keep freed memory.
//!
//! A training or decoding step allocates and frees hundreds of arrays of megabytes. By default
//! glibc returns such memory to the system at once, and every array then costs a page fault for
//! each 4 KiB the first time it is written: up to a fifth of a step.

/// Keep what is freed for the next allocation, in the whole process. To be called once, before
/// threads allocate; elsewhere than on glibc it does nothing.
pub fn keep_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Larger arrays are rare, and a key-value pool of them must stay untouched until it is used.
        const MMAP_THRESHOLD: libc::c_int = 16 << 20;
        const TRIM_THRESHOLD: libc::c_int = libc::c_int::MAX;
        const GROW_BY: libc::c_int = 16 << 20;
        let settings = [
            (libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD),
            (libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD),
            (libc::M_TOP_PAD, GROW_BY),
            // Arenas of other threads are cut into heaps of 64 MiB that are returned when empty.
            (libc::M_ARENA_MAX, 1),
        ];
        for (parameter, value) in settings {
            #[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
            // SAFETY: changes thresholds of the allocator, nothing that is allocated. A refusal
            // leaves the default, which is slower and as right.
            let _ = unsafe { libc::mallopt(parameter, value) };
        }
    }
}
