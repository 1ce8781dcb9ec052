//! The dictionary that SPDY/3 primes header compression with (draft 3, section 2.6.10.1).

use std::sync::LazyLock;

/// The words, each behind its length as in a header block, then the values that headers often have.
pub(super) static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::with_capacity(DICTIONARY_BYTES);
    for word in WORDS {
        dictionary.extend_from_slice(&(word.len() as u32).to_be_bytes());
        dictionary.extend_from_slice(word.as_bytes());
    }
    for values in VALUES {
        dictionary.extend_from_slice(values.as_bytes());
    }
    dictionary
});

const DICTIONARY_BYTES: usize = 1423;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset",
    "accept-encoding", "accept-language", "accept-ranges", "age", "allow", "authorization",
    "cache-control", "connection", "content-base", "content-encoding", "content-language",
    "content-length", "content-location", "content-md5", "content-range", "content-type", "date",
    "etag", "expect", "expires", "from", "host", "if-match", "if-modified-since", "if-none-match",
    "if-range", "if-unmodified-since", "last-modified", "location", "max-forwards", "pragma",
    "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after", "server", "te",
    "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning",
    "www-authenticate", "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public",
    "set-cookie", "keep-alive", "origin",
];

const VALUES: &[&str] = &[
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502",
    "504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Re",
    "quest401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Impl",
    "emented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00",
    ":00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,imag",
    "e/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivate",
    "max-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// zlib names a dictionary by its checksum, and refuses a stream that was made with another one.
    #[test]
    fn the_dictionary_is_the_one_of_the_draft() {
        assert_eq!(DICTIONARY.len(), DICTIONARY_BYTES);
        let mut compress = flate2::Compress::new(flate2::Compression::best(), true);
        assert_eq!(compress.set_dictionary(&DICTIONARY).unwrap(), 0xe3c6_a7c2);
    }
}
