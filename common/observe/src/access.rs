//! Access control of the HTTP server.

use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::{HeaderMap, HeaderValue};

use ata_net::{Secrets, ServerTls};

/// The name of the cookie that holds the status secret which the user typed.
const COOKIE_NAME: &str = "ata-status";

/// The clients that may read from the server.
pub enum Access {
    /// Every process on this machine may read.
    Local,
    /// Every client that reaches the server may read, in a network that the user trusts.
    Anyone,
    /// Clients with the status secret may read, over TLS.
    Secret(Box<ServerTls>, Secrets),
}

impl Access {
    /// Returns the TLS configuration, if connections are encrypted.
    pub(crate) fn tls(&self) -> Option<&ServerTls> {
        match self {
            Self::Local | Self::Anyone => None,
            Self::Secret(tls, _) => Some(tls),
        }
    }

    /// Returns `true` if a request with these headers may be answered.
    pub(crate) fn permits(&self, headers: &HeaderMap) -> bool {
        match self {
            // A page from elsewhere can make its own name resolve to this machine, but its requests carry that name.
            Self::Local => headers.get(HOST).is_some_and(is_local),
            Self::Anyone => true,
            Self::Secret(_, secrets) => presented(headers).any(|secret| secrets.lets_read(secret)),
        }
    }

    /// Returns the cookie for a client that sent the secret; `None` if the secret is wrong.
    pub(crate) fn cookie(&self, secret: &str) -> Option<String> {
        let Self::Secret(_, secrets) = self else { return None };
        let secret = secret.trim();
        secrets
            .lets_read(secret)
            .then(|| format!("{COOKIE_NAME}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=604800"))
    }
}

fn presented(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies = cookies.flat_map(|line| line.split(';')).filter_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    });
    bearer.into_iter().chain(cookies)
}

fn is_local(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names() {
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:7071", true),
            ("127.0.0.1:7071", true),
            ("[::1]:7071", true),
            ("[::1]", true),
            ("evil.example:7071", false),
            ("10.0.0.1", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_local(&HeaderValue::from_static(host)), expected, "{host}");
        }
        assert!(!Access::Local.permits(&HeaderMap::new()));
    }

    #[test]
    fn secrets_are_found_where_they_may_be() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer one"));
        headers.append(COOKIE, HeaderValue::from_static("a=b; ata-status=two;other=c"));
        assert_eq!(presented(&headers).collect::<Vec<_>>(), ["one", "two"]);
    }
}
