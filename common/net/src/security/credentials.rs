//! The coordinator's own key and secrets, kept in a folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http::uri::Authority;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use tempfile::NamedTempFile;

use super::{JoinToken, KeyPin, Secret, SecurityError, TlsFiles};

const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const LOCK: &str = "lock";

/// The role of a peer that presents a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A worker.
    Worker,
    /// A reader of the run's state.
    Status,
}

impl Role {
    fn file(self) -> &'static str {
        match self {
            Self::Worker => "worker.secret",
            Self::Status => "status.secret",
        }
    }

    fn token_file(self) -> &'static str {
        match self {
            Self::Worker => "join-token",
            Self::Status => "status-token",
        }
    }
}

/// The files of which processes that must not see the others, such as containers, need copies, and the folders for these copies.
const SHARED: [(&str, &str); 3] =
    [("for-workers", "join-token"), ("for-status", "status.secret"), ("for-status", CERTIFICATE)];

/// A folder with a self-signed certificate, its key, and one secret per [`Role`]. Each file can be read by its owner only. If it has the
/// folders `for-workers` and `for-status`, for example as mounted volumes, they get copies of the files that these need.
#[derive(Clone, Debug)]
pub struct Credentials {
    folder: PathBuf,
}

impl Credentials {
    /// Opens the folder, and creates missing files.
    pub fn open(folder: &Path) -> Result<Self, SecurityError> {
        let this = Self { folder: folder.to_owned() };
        make_folder(folder).map_err(|cause| SecurityError::Write(folder.into(), cause))?;
        let _lock = this.lock()?;
        this.files().iter().filter(|path| path.exists()).try_for_each(|path| check_private(path))?;
        if !this.path(KEY).exists() || !this.path(CERTIFICATE).exists() {
            this.make_key()?;
        }
        for role in [Role::Worker, Role::Status] {
            if !this.path(role.file()).exists() {
                this.write(role.file(), &Secret::random()?.to_string())?;
            }
        }
        this.share()?;
        Ok(this)
    }

    /// Opens the folder if it exists, without changing anything.
    pub fn existing(folder: &Path) -> Result<Option<Self>, SecurityError> {
        let this = Self { folder: folder.to_owned() };
        if !this.path(KEY).exists() {
            return Ok(None);
        }
        this.files().iter().try_for_each(|path| check_private(path))?;
        Ok(Some(this))
    }

    fn files(&self) -> [PathBuf; 4] {
        [KEY, CERTIFICATE, Role::Worker.file(), Role::Status.file()].map(|name| self.path(name))
    }

    /// Returns the paths of the certificate and its key.
    pub fn tls_files(&self) -> TlsFiles {
        TlsFiles { certificate: self.path(CERTIFICATE), key: self.path(KEY), client_ca: None }
    }

    pub(super) fn secret_file(&self, role: Role) -> PathBuf {
        self.path(role.file())
    }

    /// Returns the secret of a role.
    pub fn secret(&self, role: Role) -> Result<Secret, SecurityError> {
        read_secret(&self.secret_file(role))
    }

    /// Returns the token that admits this role at an address with this key, and the file that has it for workers that share the folder.
    pub fn token(&self, role: Role, address: Authority, pin: KeyPin) -> Result<(JoinToken, PathBuf), SecurityError> {
        let token = JoinToken { address, pin, secret: self.secret(role)? };
        self.write(role.token_file(), &token.to_string())?;
        Ok((token, self.path(role.token_file())))
    }

    /// Returns the token of a role that was created last.
    pub fn last_token(&self, role: Role) -> Option<JoinToken> {
        fs::read_to_string(self.path(role.token_file())).ok()?.parse().ok()
    }

    /// Replaces the secret of a role.
    pub fn rotate(&self, role: Role) -> Result<(), SecurityError> {
        let _lock = self.lock()?;
        self.write(role.file(), &Secret::random()?.to_string())
    }

    /// Replaces the key and its certificate.
    pub fn rotate_key(&self) -> Result<(), SecurityError> {
        let _lock = self.lock()?;
        self.make_key()
    }

    fn make_key(&self) -> Result<(), SecurityError> {
        let failed = |cause: rcgen::Error| SecurityError::file(&self.folder, &cause);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let params = CertificateParams::new(vec!["ata-coordinator".to_owned()]).map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        self.write(KEY, &key.serialize_pem())?;
        self.write(CERTIFICATE, &certificate.pem())
    }

    /// Locks the folder, so that no other process changes it at the same time.
    fn lock(&self) -> Result<File, SecurityError> {
        let path = self.path(LOCK);
        let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|cause| SecurityError::file(&path, &cause))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), SecurityError> {
        write_private(&self.folder, name, text)?;
        self.share()
    }

    fn share(&self) -> Result<(), SecurityError> {
        let read = |path: &Path| fs::read_to_string(path).ok();
        for (folder, name) in SHARED.map(|(folder, name)| (self.path(folder), name)) {
            let text = read(&self.path(name)).filter(|text| read(&folder.join(name)).as_ref() != Some(text));
            if let (Some(text), true) = (text, folder.is_dir()) {
                write_private(&folder, name, &text)?;
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Replaces a file atomically, so that a reader finds either the old or the new one. The temporary file is private from the beginning.
fn write_private(folder: &Path, name: &str, text: &str) -> Result<(), SecurityError> {
    let path = folder.join(name);
    let write = || {
        let mut file = NamedTempFile::new_in(folder)?;
        writeln!(file, "{}", text.trim_end())?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|cause: io::Error| SecurityError::Write(path, cause))
}

pub(crate) fn read_secret(path: &Path) -> Result<Secret, SecurityError> {
    let text = fs::read_to_string(path).map_err(|cause| SecurityError::file(path, &cause))?;
    text.trim().parse()
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(unix)]
pub(super) fn check_private(path: &Path) -> Result<(), SecurityError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = path.metadata().map_err(|cause| SecurityError::file(path, &cause))?;
    let for_others = metadata.permissions().mode() & 0o077;
    if for_others == 0 { Ok(()) } else { Err(SecurityError::Readable(path.to_owned())) }
}

#[cfg(not(unix))]
pub(super) fn check_private(_: &Path) -> Result<(), SecurityError> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_a_folder_lacks_is_made_once_and_kept_private() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        let first = Credentials::open(&folder).unwrap();
        let (secret, pin) = (first.secret(Role::Worker).unwrap(), first.tls_files().pin().unwrap());
        assert!(!secret.is(&first.secret(Role::Status).unwrap()), "each role has its own");
        let again = Credentials::open(&folder).unwrap();
        assert!(again.secret(Role::Worker).unwrap().is(&secret));
        assert_eq!(again.tls_files().pin().unwrap(), pin);
        let address: Authority = "head:7070".parse().unwrap();
        let (token, file) = again.token(Role::Worker, address, pin).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), token.to_string());
        assert_eq!(again.last_token(Role::Worker), Some(token));
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert!(mode == 0o600 || entry.file_name() == LOCK, "{entry:?}: {mode:o}");
        }

        again.rotate(Role::Worker).unwrap();
        assert!(!again.secret(Role::Worker).unwrap().is(&secret));
        assert_eq!(again.tls_files().pin().unwrap(), pin);
        again.rotate_key().unwrap();
        assert_ne!(again.tls_files().pin().unwrap(), pin);

        let shared = ["for-workers", "for-status"].map(|name| folder.join(name));
        for folder in &shared {
            fs::create_dir(folder).unwrap();
        }
        Credentials::open(&folder).unwrap();
        again.rotate(Role::Status).unwrap();
        let names = |folder: &PathBuf| {
            let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(shared.each_ref().map(names), [vec!["join-token"], vec![CERTIFICATE, "status.secret"]]);
        let copy = read_secret(&shared[1].join("status.secret")).unwrap();
        assert!(copy.is(&again.secret(Role::Status).unwrap()), "the copy is of the new secret");

        let path = folder.join(KEY);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Credentials::open(&folder).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }
}
