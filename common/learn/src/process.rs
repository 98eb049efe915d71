//! Memory and threads of a process that computes.

/// Has the allocator keep the memory that a gradient frees for the next one. Call it once, at the start of a program.
///
/// The C library of Linux returns large blocks to the system when they are freed, and the next gradient's begin with a page
/// fault per 4 KiB: on the CPU that can double a gradient's time. What counts as large follows the largest block that was
/// ever freed, up to 32 MiB, so that freeing one of nearly that size is enough. Larger blocks are still returned, and other
/// allocators are not affected.
pub fn keep_freed_memory() {
    const NEARLY_32_MIB: usize = (32 << 20) - (64 << 10);
    // Without the black box the compiler sees that the block is not used.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(NEARLY_32_MIB)));
}

/// Has the allocator also keep blocks of more than 32 MiB, such as the gradients of a model with 10 million parameters: without that, half
/// of a task's time is page faults.
///
/// The C library of Linux takes that setting only from the environment in which a program starts, and so does mimalloc, the allocator of
/// static programs. Therefore the program starts anew, in the same process. It returns if that is done, not possible, or not needed on this
/// system.
pub fn keep_large_blocks() {
    // No block is mapped alone, and none is returned; growth by 64 MiB at a time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    start_anew_with(
        "GLIBC_TUNABLES",
        "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864",
    );
    // Without it, mimalloc returns what is free a second after something was freed.
    #[cfg(all(target_os = "linux", target_env = "musl"))]
    start_anew_with("MIMALLOC_PURGE_DELAY", "-1");
}

/// Starts the program anew in this process, with a variable in its environment, unless the variable is there.
#[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))]
fn start_anew_with(variable: &str, value: &str) {
    use std::os::unix::process::CommandExt;
    let mut arguments = std::env::args_os();
    let (Some(name), None) = (arguments.next(), std::env::var_os(variable)) else { return };
    let mut program = std::process::Command::new("/proc/self/exe");
    let error = program.arg0(name).args(arguments).env(variable, value).exec();
    tracing::debug!(%error, "the program cannot be started anew: large gradients will take longer");
}

/// Does `work` on one thread, regardless of [`crate::limit_threads`].
///
/// # Panics
/// If no thread can be started.
pub fn on_one_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread can be started").install(work)
}

/// How much of a core a thread gets that other threads want too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// What the others leave.
    Idle,
    /// About a tenth.
    Low,
}

/// Does `work` on this thread, which from then on gives way to all others of the machine, as do the threads that compute for it. They
/// still have all of a core that the others leave.
///
/// On systems other than Linux, where a thread has no priority of its own, it takes its turn like any other.
pub(crate) fn with_urgency(urgency: Urgency, work: impl FnOnce()) {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{NormalThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy};
        let (priority, policy) = match urgency {
            // A low priority would not do: such a thread still keeps a core until its slice of some milliseconds is over.
            Urgency::Idle => (ThreadPriority::Min, NormalThreadSchedulePolicy::Idle),
            // A nice value of 10, which Linux weighs with 110 against 1024.
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
    // Threads that it starts inherit its priority, so the common ones will not do.
    with_own_threads(work);
}

/// Does `work` on this thread, helped by threads of its own, as many in all as [`crate::limit_threads`] says.
///
/// A gradient is handed to the helpers a dozen times. With common threads this one would sleep each time until they are
/// done; so it takes part. To be called on a thread for nothing else: a second call on it is helped by the first's threads.
pub fn with_own_threads<T>(work: impl FnOnce() -> T) -> T {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(thread_count()).use_current_thread().build();
    let result = work();
    drop(threads);
    result
}

/// Number of threads that the CPU device uses.
pub fn thread_count() -> usize {
    rayon::current_num_threads()
}
