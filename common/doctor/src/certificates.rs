//! Checks keys, secrets and certificates: whether they are usable, by whom, and for how long.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ata_net::{Credentials, Role, SecurityError, Validity, check_key, validity};

use crate::finding::Finding;

const CHECK: &str = "certificates";

/// The remaining time below which a certificate is due for replacement; authorities issue for 90 days and more.
const SOON: Duration = Duration::from_hours(14 * 24);

/// The user's own certificates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own<'a> {
    /// The certificate and its key.
    pub pair: Option<(&'a Path, &'a Path)>,
    /// The certificates of trusted authorities.
    pub authorities: [Option<&'a Path>; 2],
}

/// Checks the user's own certificates.
pub fn own(files: Own<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((certificate, key)) = files.pair {
        findings.push(match check_key(certificate, key) {
            Ok(()) => Finding::ok(CHECK, format!("{} is the key of {}", key.display(), certificate.display())),
            Err(error @ SecurityError::Readable(_)) => {
                Finding::warning(CHECK, error.to_string(), format!("chmod 600 {}", key.display()))
            }
            Err(error) => Finding::problem(
                CHECK,
                format!("{error}: expected the key of {}", certificate.display()),
                "--tls-cert and --tls-key name a certificate and its own private key, both in PEM",
            ),
        });
    }
    let certificates = files.pair.map(|(certificate, _)| certificate).into_iter();
    findings.extend(certificates.chain(files.authorities.into_iter().flatten()).map(|path| dates(path, now())));
    findings
}

/// Checks the folder of a coordinator's credentials.
pub fn credentials(folder: &Path) -> Finding {
    let shown = folder.display();
    let usable = Credentials::existing(folder).and_then(|credentials| {
        let Some(credentials) = credentials else { return Ok(false) };
        let files = credentials.tls_files();
        check_key(&files.certificate, &files.key)?;
        [Role::Worker, Role::Status].iter().try_for_each(|role| credentials.secret(*role).map(drop))?;
        Ok(true)
    });
    match usable {
        Ok(true) => Finding::ok(CHECK, format!("{shown} holds a key and secrets, for this user only")),
        Ok(false) => {
            Finding::ok(CHECK, format!("{shown} holds no key yet; a coordinator on an open address makes one"))
        }
        Err(error @ SecurityError::Readable(_)) => {
            Finding::problem(CHECK, error.to_string(), format!("chmod 600 {shown}/*, and `ata token rotate --key`"))
        }
        Err(error) => {
            let fix = format!(
                "remove {shown}: new ones are made, and workers need the new token; or `ata token rotate --key`"
            );
            Finding::problem(CHECK, error.to_string(), fix)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "certificates are valid for a time of the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Checks whether a file's certificates are valid now, and for how long.
fn dates(path: &Path, now: SystemTime) -> Finding {
    let shown = path.display();
    let Validity { from_s, until_s } = match validity(path) {
        Ok(validity) => validity,
        Err(error) => return Finding::problem(CHECK, error.to_string(), "expected a certificate in PEM"),
    };
    let now_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let renew = "have it renewed; a coordinator reads the new file without a restart";
    if now_s < from_s {
        let found = format!("{shown} is valid from {} on", date(from_s));
        Finding::problem(CHECK, found, "correct this machine's clock, if that is what is wrong, or wait")
    } else if now_s > until_s {
        Finding::problem(CHECK, format!("{shown} was valid until {}", date(until_s)), renew)
    } else if until_s - now_s < SOON.as_secs() {
        Finding::warning(CHECK, format!("{shown} is valid until {} only", date(until_s)), renew)
    } else {
        Finding::ok(CHECK, format!("{shown} is valid until {}", date(until_s)))
    }
}

/// Formats a date, or says that there is none.
fn date(seconds: u64) -> String {
    // The last second whose year has four digits.
    const LAST_S: u64 = 253_402_300_799;
    let shown = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_S))).to_string();
    shown.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use std::fs;

    /// Writes a certificate valid from 2020 to 2030, its key, and another key; returns their folder.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(vec!["rig".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2030, 1, 1));
        fs::write(folder.path().join("rig.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        for (name, key) in [("rig.key", key), ("other.key", other)] {
            fs::write(folder.path().join(name), key.serialize_pem()).unwrap();
            private(&folder.path().join(name), 0o600);
        }
        folder
    }

    #[cfg(unix)]
    fn private(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[cfg(not(unix))]
    fn private(_: &Path, _: u32) {}

    #[test]
    fn certificates_have_their_time() {
        let folder = folder();
        let at = |seconds| dates(&folder.path().join("rig.pem"), UNIX_EPOCH + Duration::from_secs(seconds));
        let (begin, end) = (1_577_836_800, 1_893_456_000);
        for (seconds, status, found) in [
            (begin - 1, Status::Problem, "from 2020-01-01"),
            (begin, Status::Ok, "until 2030-01-01"),
            (end - 1000, Status::Warning, "until 2030-01-01 only"),
            (end + 1, Status::Problem, "was valid until 2030-01-01"),
        ] {
            let finding = at(seconds);
            assert_eq!((finding.status, finding.found.contains(found)), (status, true), "{}", finding.found);
        }
        assert_eq!(date(u64::MAX), "9999-12-31");
    }

    #[test]
    fn a_key_of_another_certificate_is_a_problem() {
        let folder = folder();
        let path = |name| folder.path().join(name);
        let status = |key| {
            let (certificate, key) = (path("rig.pem"), path(key));
            own(Own { pair: Some((&certificate, &key)), authorities: [None, None] })[0].status
        };
        assert_eq!(status("rig.key"), Status::Ok);
        assert_eq!(status("other.key"), Status::Problem);
        assert_eq!(status("missing.key"), Status::Problem);
        #[cfg(unix)]
        {
            private(&path("rig.key"), 0o644);
            assert_eq!(status("rig.key"), Status::Warning);
        }
    }

    #[test]
    fn credentials_are_looked_at_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        assert!(credentials(&path).found.contains("holds no key yet") && !path.exists());
        drop(Credentials::open(&path).unwrap());
        assert!(credentials(&path).found.contains("for this user only"), "{}", credentials(&path).found);
        #[cfg(unix)]
        {
            private(&path.join("key.pem"), 0o640);
            let finding = credentials(&path);
            assert!(finding.status == Status::Problem && finding.fix.unwrap().contains("chmod 600"));
            private(&path.join("key.pem"), 0o600);
        }
        fs::write(path.join("worker.secret"), "x").unwrap();
        assert_eq!(credentials(&path).status, Status::Problem);
    }
}
