//! What a server's answer means for a download of which a part may be there already.

use ureq::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The archive follows from its start. Its length is `total`, if the server says so.
    Whole { total: Option<u64> },
    /// What is missing follows. The length of the whole archive is `total`, if the server says so.
    Rest { total: Option<u64> },
    /// Nothing is missing.
    Complete,
    /// What is there is no part of what the server has.
    Misfit,
    /// It may be worth trying again.
    Busy,
    /// The server does not serve this.
    Refused,
}

impl Answer {
    /// The meaning of an answer to a request for everything after the first `held` bytes, or simply everything if that
    /// is zero.
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, held: u64) -> Self {
        let range = ContentRange::of(headers);
        match status {
            StatusCode::OK => Self::Whole { total: text(headers, &header::CONTENT_LENGTH).and_then(number) },
            StatusCode::PARTIAL_CONTENT if held > 0 => {
                if range.first == Some(held) {
                    Self::Rest { total: range.total }
                } else {
                    Self::Misfit
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE if held > 0 => {
                if range.total == Some(held) {
                    Self::Complete
                } else {
                    Self::Misfit
                }
            }
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Busy,
            _ => Self::Refused,
        }
    }
}

/// What identifies this version of the archive in an If-Range header: the entity tag if it is a strong one, or else the
/// time of the last change.
pub(super) fn version(headers: &HeaderMap) -> Option<HeaderValue> {
    let strong = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
    strong.or_else(|| headers.get(header::LAST_MODIFIED)).cloned()
}

/// `bytes 500-999/1000`, `bytes 500-999/*` or `bytes */1000`.
#[derive(Default)]
struct ContentRange {
    first: Option<u64>,
    total: Option<u64>,
}

impl ContentRange {
    fn of(headers: &HeaderMap) -> Self {
        let parts = text(headers, &header::CONTENT_RANGE)
            .and_then(|value| value.strip_prefix("bytes "))
            .and_then(|value| value.split_once('/'));
        let Some((range, total)) = parts else { return Self::default() };
        Self { first: range.split_once('-').and_then(|(first, _)| number(first)), total: number(total) }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn answers_are_understood() {
        let (length, range) = ("content-length", "content-range");
        for (status, header, held, expected) in [
            (200, (length, "1000"), 0, Answer::Whole { total: Some(1000) }),
            (200, (length, "1000"), 500, Answer::Whole { total: Some(1000) }),
            (200, (length, "many"), 0, Answer::Whole { total: None }),
            (206, (range, "bytes 500-999/1000"), 500, Answer::Rest { total: Some(1000) }),
            (206, (range, "bytes 500-999/*"), 500, Answer::Rest { total: None }),
            (206, (range, "bytes 0-999/1000"), 500, Answer::Misfit),
            (206, (length, "500"), 500, Answer::Misfit),
            (206, (range, "bytes 0-999/1000"), 0, Answer::Refused),
            (416, (range, "bytes */1000"), 1000, Answer::Complete),
            (416, (range, "bytes */1000"), 1001, Answer::Misfit),
            (416, (length, "0"), 1000, Answer::Misfit),
            (416, (range, "bytes */1000"), 0, Answer::Refused),
            (503, (length, "0"), 0, Answer::Busy),
            (404, (length, "0"), 500, Answer::Refused),
            (304, (length, "0"), 0, Answer::Refused),
        ] {
            let headers = headers(&[header]);
            let found = Answer::new(StatusCode::from_u16(status).unwrap(), &headers, held);
            assert_eq!(found, expected, "{status} {header:?} with {held} bytes held");
        }
    }

    /// RFC 9110, section 13.1.5: a weak entity tag must not be used in If-Range.
    #[test]
    fn a_weak_tag_identifies_no_version() {
        let date = "Thu, 16 Apr 2009 03:05:12 GMT";
        let (strong, weak, changed) = (("etag", "\"v1\""), ("etag", "W/\"v1\""), ("last-modified", date));
        let found = |pairs: &[_]| version(&headers(pairs)).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(found(&[strong, changed]).as_deref(), Some("\"v1\""));
        assert_eq!(found(&[weak, changed]).as_deref(), Some(date));
        assert_eq!(found(&[weak]), None);
    }
}
