//! Tests authentication: neither a secret nor data passes before both sides have authenticated each other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ata_net::{
    ConnectError, Credentials, Endpoint, JoinToken, Role, Secret, Secrets, Security, SendAhead, ServerTls, TlsFiles,
    Trust, serve, why_refused,
};
use ata_wire::proto::{DataRequest, ParametersRequest};
use ata_wire::{
    Connection, FramedSet, GradientUpload, Reader, Receipt, SessionToken, TransferRouter, Transfers, connect,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::Stream;
use tonic::transport::{Certificate, Identity};
use tonic::{Code, Status};

/// A wait that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(30);

/// A service that counts the calls that reach it.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Counting {
    fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Transfers for Counting {
    async fn parameters(
        &self,
        _: SessionToken,
        _: Reader,
    ) -> Result<impl Stream<Item = FramedSet> + Send + 'static, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(tokio_stream::empty())
    }

    async fn submit_gradient(&self, _: GradientUpload) -> Result<Receipt, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Receipt::Accepted)
    }
}

async fn start(security: Security) -> (SocketAddr, Counting) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counting = Counting::default();
    let service = TransferRouter::alone(counting.clone());
    tokio::spawn(serve(listener, Arc::new(security), SendAhead::up_to(1 << 30), service, std::future::pending()));
    (address, counting)
}

struct Own {
    _folder: TempDir,
    credentials: Credentials,
}

impl Own {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(folder.path()).unwrap();
        Self { _folder: folder, credentials }
    }

    async fn start(&self) -> (SocketAddr, Counting) {
        let tls = ServerTls::new(self.credentials.tls_files()).unwrap();
        start(Security::Secret(tls, Secrets::of(&self.credentials).unwrap())).await
    }

    fn token(&self, address: SocketAddr) -> JoinToken {
        let pin = self.credentials.tls_files().pin().unwrap();
        self.credentials.token(Role::Worker, address.to_string().parse().unwrap(), pin).unwrap().0
    }
}

async fn join(token: JoinToken) -> Connection {
    connect(&token.into()).await.unwrap()
}

/// Asks for parameters, as a session would.
async fn ask(connection: &Connection) -> Result<(), Status> {
    let request = ParametersRequest { session: SessionToken([0; 16]).to_wire(), evaluated_step: 0 };
    connection.transfers().parameters(request).await.map(drop)
}

/// Waits until a replaced file has been read again, which takes a moment.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let known = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, known).await.is_ok(), "{what}");
}

fn refusal(error: ConnectError) -> String {
    let ConnectError::Distrusted(_, reason) = error else { panic!("{error:?}") };
    reason
}

/// Something accepts connections and says nothing: a firewall, or a coordinator whose machine hangs.
#[tokio::test]
async fn a_silent_port_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let token = Own::new().token(listener.local_addr().unwrap());
    let error = tokio::time::timeout(DEADLINE, connect(&token.into())).await.expect("an answer").unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

/// A man in the middle has another key: the worker sends nothing, not even the secret.
#[tokio::test]
async fn another_key_is_not_trusted() {
    let (own, other) = (Own::new(), Own::new());
    let (address, counting) = other.start().await;
    let refused = refusal(connect(&own.token(address).into()).await.unwrap_err());
    assert!(refused.contains("another key") && refused.contains("ata token show"), "{refused}");
    assert_eq!(counting.calls(), 0);
    // The coordinator with this key is trusted.
    let right = JoinToken { pin: other.credentials.tls_files().pin().unwrap(), ..own.token(address) };
    let refused = ask(&join(right).await).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "but the secret is that of another coordinator");
    assert_eq!(counting.calls(), 0);
}

#[tokio::test]
async fn no_call_is_answered_without_the_secret() {
    let own = Own::new();
    let (address, counting) = own.start().await;
    let with = async |secret| join(JoinToken { secret, ..own.token(address) }).await;
    for (secret, said) in [
        (Secret::random().unwrap(), "`ata token show`"),
        (own.credentials.secret(Role::Status).unwrap(), "for reading the status only"),
    ] {
        let connection = with(secret).await;
        let session = connection.coordinator().session(tokio_stream::pending()).await.map(drop);
        let data = connection.coordinator().data(DataRequest::default()).await.map(drop);
        let probe = connection.probe(0, 0).await.map(drop);
        let gradient = connection.transfers().submit_gradient(tokio_stream::pending()).await.map(drop);
        for answer in [session, data, probe, ask(&connection).await, gradient] {
            let refused = answer.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
            assert!(refused.message().contains(said), "{refused}");
        }
    }
    assert_eq!(counting.calls(), 0);
}

#[tokio::test]
async fn a_rotated_secret_lets_in_no_new_session() {
    let own = Own::new();
    let (address, counting) = own.start().await;
    let old = join(own.token(address)).await;
    let begin = async |connection: &Connection| {
        let begun = connection.coordinator().session(tokio_stream::pending()).await;
        begun.map(drop).unwrap_err().code()
    };
    // This service has no sessions and answers UNIMPLEMENTED to every admitted peer.
    assert_eq!(begin(&old).await, Code::Unimplemented);
    own.credentials.rotate(Role::Worker).unwrap();
    until("the old secret is refused", async || begin(&old).await == Code::PermissionDenied).await;
    ask(&old).await.unwrap();
    let probed = old.probe(0, 0).await.unwrap_err();
    assert_eq!(probed.code(), Code::PermissionDenied, "a peer may be about to begin a session");
    assert_eq!(begin(&join(own.token(address)).await).await, Code::Unimplemented);
    assert_eq!(counting.calls(), 1);
}

#[tokio::test]
async fn plain_and_encrypted_understand_that_they_do_not_understand_each_other() {
    let own = Own::new();
    let (address, counting) = own.start().await;
    let plain = connect(&address.to_string().parse().unwrap()).await.unwrap();
    let refused = ask(&plain).await.unwrap_err();
    assert!(why_refused(&refused).unwrap().contains("--join"), "{refused:?}");

    let (open, reached) = start(Security::Open).await;
    let refused = refusal(connect(&own.token(open).into()).await.unwrap_err());
    assert!(refused.contains("does not speak TLS"), "{refused}");
    assert_eq!((counting.calls(), reached.calls()), (0, 0));

    let mut http1 = TcpStream::connect(open).await.unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nHost: head\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The connection is closed, perhaps after an HTTP/2 message.
    drop(http1.read_to_end(&mut answer).await);
    assert_eq!(reached.calls(), 0);
}

struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn issue(&self, name: &str, year: i32) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        std::fs::write(&files.0, certificate.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    fn tls(&self, (certificate, key): (PathBuf, PathBuf)) -> ServerTls {
        ServerTls::new(TlsFiles { certificate, key, client_ca: Some(self.path("ca.pem")) }).unwrap()
    }

    fn endpoint(&self, address: SocketAddr, identity: Option<&(PathBuf, PathBuf)>) -> Endpoint {
        let read = |path: &Path| std::fs::read(path).unwrap();
        let ca = Certificate::from_pem(read(&self.path("ca.pem")));
        let identity = identity.map(|(certificate, key)| Identity::from_pem(read(certificate), read(key)));
        Endpoint::trusting(&format!("https://{address}"), Trust::Certificates { ca, identity }).unwrap()
    }
}

#[tokio::test]
async fn own_certificates_must_be_valid_on_both_sides() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (address, counting) = start(Security::Certificates(ours.tls(ours.issue("head", 4000)))).await;
    let good = ours.issue("rig", 4000);
    ask(&connect(&ours.endpoint(address, Some(&good))).await.unwrap()).await.unwrap();
    assert_eq!(counting.calls(), 1);

    for identity in [None, Some(ours.issue("late", 2020)), Some(theirs.issue("stranger", 4000))] {
        // In TLS 1.3 the client is done before the server has checked its certificate.
        let refused = match connect(&ours.endpoint(address, identity.as_ref())).await {
            Ok(connection) => {
                let refused = ask(&connection).await.unwrap_err();
                why_refused(&refused).unwrap_or_else(|| panic!("{refused:?}"))
            }
            Err(error) => refusal(error),
        };
        assert!(refused.contains("certificate"), "{refused}");
    }
    let refused = refusal(connect(&theirs.endpoint(address, Some(&good))).await.unwrap_err());
    assert!(refused.contains("certificate is not valid"), "{refused}");

    let (address, late) = start(Security::Certificates(ours.tls(ours.issue("old-head", 2020)))).await;
    let refused = refusal(connect(&ours.endpoint(address, Some(&good))).await.unwrap_err());
    assert!(refused.contains("xpired"), "{refused}");
    assert_eq!((counting.calls(), late.calls()), (1, 0));
}

#[tokio::test]
async fn certificates_are_replaced_without_a_restart() {
    let authority = Authority::new();
    let good = authority.issue("rig", 4000);
    let (address, counting) = start(Security::Certificates(authority.tls(authority.issue("head", 2020)))).await;
    refusal(connect(&authority.endpoint(address, Some(&good))).await.unwrap_err());
    authority.issue("head", 4000);
    let is_good = async || connect(&authority.endpoint(address, Some(&good))).await.is_ok();
    until("the new certificate is presented", is_good).await;
    ask(&connect(&authority.endpoint(address, Some(&good))).await.unwrap()).await.unwrap();
    // An invalid file leaves the last valid one in use.
    std::fs::write(authority.path("head.pem"), "nonsense").unwrap();
    ask(&connect(&authority.endpoint(address, Some(&good))).await.unwrap()).await.unwrap();
    assert_eq!(counting.calls(), 2);
}
