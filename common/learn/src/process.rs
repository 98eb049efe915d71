//! How a process computes: its memory and its threads.

/// Has the allocator keep the memory that a gradient frees for the next one. Call it once, at the start of a program.
///
/// The C library of Linux returns large blocks to the system when they are freed, and the next gradient's begin with a page
/// fault per 4 KiB: on the CPU that can double a gradient's time. What counts as large follows the largest block that was
/// ever freed, up to 32 MiB, so that freeing one of nearly that size is enough. Larger blocks are still returned, and other
/// systems' allocators are not affected.
pub fn keep_freed_memory() {
    const NEARLY_32_MIB: usize = (32 << 20) - (64 << 10);
    // Without the black box the compiler sees that the block is not used.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(NEARLY_32_MIB)));
}

/// Does `work` on one thread, whatever [`crate::limit_threads`] says.
///
/// # Panics
/// If no thread can be started.
pub fn on_one_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started").install(work)
}

/// How many threads the CPU device uses.
pub fn thread_count() -> usize {
    rayon::current_num_threads()
}
