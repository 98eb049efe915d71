//! The memory and the threads of a process that computes.

/// Makes the allocator keep the memory that a gradient frees for the next one. Call this once, at the start of a program.
///
/// On Linux, the C library returns large blocks to the system when they are freed, and the blocks of the next gradient
/// begin with a page fault per 4 KiB: on the CPU this can double a gradient's time. The threshold for large blocks
/// follows the largest block that was ever freed, up to 32 MiB, so freeing one of nearly that size is enough. Larger
/// blocks are still returned, and other allocators are not affected.
pub fn keep_freed_memory() {
    const NEARLY_32_MIB: usize = (32 << 20) - (64 << 10);
    // The black box keeps the compiler from removing the unused block.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(NEARLY_32_MIB)));
}

/// Makes the allocator also keep blocks of more than 32 MiB, such as the gradients of a model with 10 million
/// parameters: otherwise page faults take half of a task's time.
///
/// On Linux, the C library only reads this setting from the environment at the start of a program, and so does
/// mimalloc, the allocator of static programs. Therefore this restarts the program in the same process. It returns if
/// the setting is already made, or if the restart is not possible or not needed on this system.
pub fn keep_large_blocks() {
    // With these settings no block is mapped alone, none is returned, and the heap grows by 64 MiB at a time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    start_anew_with(
        "GLIBC_TUNABLES",
        "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864",
    );
    // Without this, mimalloc returns free memory after a second.
    #[cfg(all(target_os = "linux", target_env = "musl"))]
    start_anew_with("MIMALLOC_PURGE_DELAY", "-1");
}

/// Restarts the program in this process with an environment variable, unless the variable is set.
#[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))]
fn start_anew_with(variable: &str, value: &str) {
    use std::os::unix::process::CommandExt;
    let mut arguments = std::env::args_os();
    let (Some(name), None) = (arguments.next(), std::env::var_os(variable)) else { return };
    let mut program = std::process::Command::new("/proc/self/exe");
    let error = program.arg0(name).args(arguments).env(variable, value).exec();
    tracing::debug!(%error, "the program cannot be started anew: large gradients will take longer");
}

/// Runs `work` on one thread, regardless of [`crate::limit_threads`].
///
/// # Panics
/// Panics if no thread can be started.
pub fn on_one_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started").install(work)
}

/// The share of a contended core that a thread gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// The thread only gets idle time.
    Idle,
    /// The thread gets about a tenth.
    Low,
}

/// Runs `work` on this thread, which from then on gives way to all other threads of the machine, and so do the threads
/// that compute for it. They still use all of an idle core.
///
/// On systems other than Linux, where a single thread cannot have a priority, it is scheduled like any other.
pub(crate) fn with_urgency(urgency: Urgency, work: impl FnOnce()) {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy};
        let (priority, policy) = match urgency {
            // A low priority would not be enough: such a thread still keeps a core until its time slice of some milliseconds is over.
            Urgency::Idle => (ThreadPriority::Min, NormalThreadSchedulePolicy::Idle),
            // The nice value is 10, which Linux weighs with 110 against 1024.
            Urgency::Low => {
                let value = ThreadPriorityValue::try_from(22).expect("it is below 100");
                (ThreadPriority::Crossplatform(value), NormalThreadSchedulePolicy::Other)
            }
        };
        let (this, policy) = (thread_priority::thread_native_id(), ThreadSchedulePolicy::Normal(policy));
        if let Err(error) = thread_priority::set_thread_priority_and_policy(this, priority, policy) {
            tracing::debug!(?error, "a background thread cannot be made to give way");
        }
    }
    // New threads inherit this priority, so the shared threads cannot be used.
    with_own_threads(work);
}

/// Runs `work` on this thread and on threads of its own, as many in all as [`crate::limit_threads`] allows.
///
/// A gradient distributes work to the helpers a dozen times. With shared threads this one would sleep each time until
/// they are done; so it takes part. Call this on a dedicated thread: a second call on it uses the threads of the first.
pub fn with_own_threads<T>(work: impl FnOnce() -> T) -> T {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(thread_count()).use_current_thread().build();
    let result = work();
    drop(threads);
    result
}

/// Returns the number of threads that the CPU device uses.
pub fn thread_count() -> usize {
    rayon::current_num_threads()
}
