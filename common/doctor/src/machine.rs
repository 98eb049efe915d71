//! The files that describe this machine. They are read below a root folder, so that tests can replace them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The folders in which the loader of shared libraries looks, after its cache.
const LIBRARIES: [&str; 7] = [
    "usr/lib",
    "usr/lib64",
    "usr/local/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
];

/// Describes a machine by its files and this process's environment.
pub struct MachineReport {
    root: PathBuf,
    variables: BTreeMap<String, String>,
}

impl MachineReport {
    /// Describes the machine that this process runs on.
    pub fn this() -> Self {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Self { root: "/".into(), variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// Returns an environment variable, if it is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).filter(|value| !value.is_empty()).cloned()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.inside(path).exists()
    }

    pub(crate) fn is_container(&self) -> bool {
        ["/.dockerenv", "/run/.containerenv"].iter().any(|file| self.exists(file))
            || self.variable("KUBERNETES_SERVICE_HOST").is_some()
    }

    /// Returns the sorted entries of a folder whose names begin with `prefix`.
    pub(crate) fn list(&self, folder: &str, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(self.inside(folder)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut paths: Vec<String> =
            names.filter(|name| name.starts_with(prefix)).map(|name| format!("{folder}/{name}")).collect();
        paths.sort();
        paths
    }

    /// Returns `true` if the loader would find a shared library.
    pub(crate) fn has_library(&self, name: &str) -> bool {
        // The cache contains names that end with NUL.
        let entry = [b"\0", name.as_bytes(), b"\0"].concat();
        let cache = fs::read(self.inside("/etc/ld.so.cache")).unwrap_or_default();
        let is_cached = cache.windows(entry.len()).any(|window| window == entry);
        let chosen = self.variable("LD_LIBRARY_PATH").unwrap_or_default();
        is_cached
            || chosen.split(':').any(|folder| !folder.is_empty() && Path::new(folder).join(name).exists())
            || LIBRARIES.iter().any(|folder| self.root.join(folder).join(name).exists())
    }

    /// Checks whether this user may use a device file.
    pub(crate) fn may_use(&self, device: &str) -> io::Result<()> {
        File::options().read(true).write(true).open(self.inside(device)).map(drop)
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine whose files are created by a test.
    pub(crate) struct MadeUp {
        folder: tempfile::TempDir,
    }

    impl MadeUp {
        pub(crate) fn new(files: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(file.trim_start_matches('/'));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            Self { folder }
        }

        pub(crate) fn machine(&self, variables: &[(&str, &str)]) -> MachineReport {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            MachineReport { root: self.folder.path().into(), variables }
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }
    }

    #[test]
    fn libraries_are_found_in_the_cache_or_in_folders() {
        let made_up = MadeUp::new(&["/usr/lib/x86_64-linux-gnu/libone.so.1", "/opt/libthree.so.1", "/etc/ld.so.cache"]);
        fs::write(made_up.path("etc/ld.so.cache"), b"glibc\0libtwo.so.1\0/lib/libtwo.so.1\0").unwrap();
        let opt = made_up.path("opt").to_str().unwrap().to_owned();
        let machine = made_up.machine(&[("LD_LIBRARY_PATH", &opt)]);
        let found = ["libone.so.1", "libtwo.so.1", "libthree.so.1", "libtwo.so"].map(|name| machine.has_library(name));
        assert_eq!(found, [true, true, true, false]);
    }
}
