//! Finds the URLs in HTML as it passes: attributes of start tags. Everything else is copied byte by byte,
//! so a page that this does not understand arrives as it was.

use std::io;

use super::Rewriter;

/// Attributes that are URLs, by the element that has them.
const URL_ATTRIBUTES: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Between their tags there is text, whatever it looks like.
const RAW_TEXT: [&str; 8] =
    ["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"];

/// A tag that is longer is copied as it is.
const TAG_BYTES_MAX: usize = 64 * 1024;

/// Takes HTML in pieces; `take` has what is rewritten so far.
pub(super) struct HtmlRewriter {
    rewriter: Rewriter,
    state: State,
    /// The markup that has begun and not ended.
    pending: Vec<u8>,
    out: Vec<u8>,
}

enum State {
    Text,
    /// From `<` to `>`, with the quote that the position is in.
    Tag {
        quote: Option<u8>,
    },
    /// `<!--` to `-->`.
    Comment,
    /// Until the end tag of this element.
    Raw(&'static str),
}

impl HtmlRewriter {
    pub(super) fn new(rewriter: Rewriter) -> Self {
        Self { rewriter, state: State::Text, pending: Vec::new(), out: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// What has begun will not end any more.
    pub(super) fn end(&mut self) {
        self.out.append(&mut self.pending);
    }

    fn push(&mut self, byte: u8) {
        match &mut self.state {
            State::Text if byte == b'<' => {
                self.pending.push(byte);
                self.state = State::Tag { quote: None };
            }
            State::Text => self.out.push(byte),
            State::Tag { quote } => {
                self.pending.push(byte);
                match (*quote, byte) {
                    (Some(open), byte) if open == byte => *quote = None,
                    // A quote belongs to a value only behind an equals sign.
                    (None, b'"' | b'\'') if is_value_next(&self.pending) => *quote = Some(byte),
                    (None, b'>') => self.finish_tag(),
                    _ => {}
                }
                if self.pending == b"<!--" {
                    self.state = State::Comment;
                    self.flush();
                } else if is_text(&self.pending) || self.pending.len() > TAG_BYTES_MAX {
                    self.state = State::Text;
                    self.flush();
                }
            }
            State::Comment => {
                self.out.push(byte);
                self.pending.push(byte);
                if self.pending.ends_with(b"-->") {
                    self.pending.clear();
                    self.state = State::Text;
                } else if self.pending.len() > 3 {
                    self.pending.remove(0);
                }
            }
            State::Raw(element) => {
                self.out.push(byte);
                self.pending.push(byte.to_ascii_lowercase());
                let end = [b"</", element.as_bytes()].concat();
                if self.pending == end {
                    self.pending.clear();
                    self.state = State::Text;
                } else if !end.starts_with(&self.pending) {
                    self.pending.clear();
                    if byte == b'<' {
                        self.pending.push(byte);
                    }
                }
            }
        }
    }

    fn flush(&mut self) {
        self.out.append(&mut self.pending);
    }

    /// A whole tag is pending.
    fn finish_tag(&mut self) {
        self.state = State::Text;
        let tag = std::mem::take(&mut self.pending);
        let name = tag[1..].split(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let known = URL_ATTRIBUTES.iter().find(|(element, _)| element.as_bytes() == name);
        match known {
            Some((_, attributes)) => self.rewrite_tag(&tag, attributes),
            None => self.out.extend_from_slice(&tag),
        }
        if let Some(raw) = RAW_TEXT.iter().find(|element| element.as_bytes() == name) {
            self.state = State::Raw(raw);
        }
    }

    fn rewrite_tag(&mut self, tag: &[u8], attributes: &[&str]) {
        let mut at = 0;
        for value in values(tag) {
            let name = tag[value.name].to_ascii_lowercase();
            if !attributes.iter().any(|wanted| wanted.as_bytes() == name) {
                continue;
            }
            let Ok(text) = std::str::from_utf8(&tag[value.value.clone()]) else { continue };
            let Some(url) = self.rewriter.url(&unescape(text)) else { continue };
            self.out.extend_from_slice(&tag[at..value.value.start]);
            if value.quoted {
                self.out.extend_from_slice(escape(&url).as_bytes());
            } else {
                self.out.extend_from_slice(format!("\"{}\"", escape(&url)).as_bytes());
            }
            at = value.value.end;
        }
        self.out.extend_from_slice(&tag[at..]);
    }
}

impl io::Write for HtmlRewriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.push(*byte);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether what follows a `<` makes it text, as in `a < b`.
fn is_text(pending: &[u8]) -> bool {
    let is_markup = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'!' | b'?');
    matches!(pending, [_, byte] if !is_markup(*byte))
}

/// Whether the quote at the end of a tag begins a value.
fn is_value_next(tag: &[u8]) -> bool {
    let before = tag[..tag.len() - 1].trim_ascii_end();
    before.ends_with(b"=")
}

struct Attribute {
    name: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
    quoted: bool,
}

/// The attributes of a start tag that have a value.
fn values(tag: &[u8]) -> Vec<Attribute> {
    let mut found = Vec::new();
    let skip = |from: usize, wanted: &dyn Fn(u8) -> bool| {
        tag[from..].iter().position(|byte| !wanted(*byte)).map_or(tag.len(), |at| from + at)
    };
    let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == b'/';
    let in_name = |byte: u8| !byte.is_ascii_whitespace() && !matches!(byte, b'=' | b'>' | b'/');
    let mut at = skip(1, &|byte| byte.is_ascii_alphanumeric());
    loop {
        at = skip(at, &is_space);
        let name = at..skip(at, &in_name);
        if name.is_empty() {
            return found;
        }
        at = skip(name.end, &|byte| byte.is_ascii_whitespace());
        if tag.get(at) != Some(&b'=') {
            continue;
        }
        at = skip(at + 1, &|byte| byte.is_ascii_whitespace());
        let value = match tag.get(at) {
            Some(quote @ (b'"' | b'\'')) => at + 1..skip(at + 1, &|byte| byte != *quote),
            _ => at..skip(at, &|byte| !byte.is_ascii_whitespace() && byte != b'>'),
        };
        let quoted = value.start > at;
        at = value.end + usize::from(quoted);
        found.push(Attribute { name, value, quoted });
        if at >= tag.len() {
            return found;
        }
    }
}

/// The references that URLs have in attributes.
fn unescape(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&#34;", "\"").replace("&#39;", "'");
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('\'', "&#39;").replace('"', "&#34;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::rewrite::tests::rewriter;

    fn rewritten(page: &str, piece: usize) -> String {
        let mut html = HtmlRewriter::new(rewriter());
        for piece in page.as_bytes().chunks(piece) {
            html.write_all(piece).unwrap();
        }
        html.end();
        String::from_utf8(html.take()).unwrap()
    }

    #[test]
    fn links_are_rewritten_and_all_else_is_left_alone() {
        let cases = [
            (r#"<a href="/x">x</a>"#, r#"<a href="PROXY/x">x</a>"#),
            ("<A class=b HREF=/x>", "<A class=b HREF=\"PROXY/x\">"),
            (
                "<img src='/i?a=1&amp;b=2' alt='<a href=\"/x\">'/>",
                "<img src='PROXY/i?a=1&amp;b=2' alt='<a href=\"/x\">'/>",
            ),
            (
                "<script src=\"/s\">var a = '<a href=\"/x\">';</script><a href=\"/y\">",
                "<script src=\"PROXY/s\">var a = '<a href=\"/x\">';</script><a href=\"PROXY/y\">",
            ),
            (
                "<!-- <a href=\"/x\"> --><a href=\"/y\">",
                "<!-- <a href=\"/x\"> --><a href=\"PROXY/y\">",
            ),
            ("1 < 2 <p href=\"/x\"> </p>", "1 < 2 <p href=\"/x\"> </p>"),
            (
                "<a href=\"x\"><a href=\"http://elsewhere/x\">",
                "<a href=\"x\"><a href=\"http://elsewhere/x\">",
            ),
            ("<a title=it's href=\"/x\">", "<a title=it's href=\"PROXY/x\">"),
            ("<a href", "<a href"),
            (
                "<form action=\"/f\"><input formaction=/g>",
                "<form action=\"PROXY/f\"><input formaction=\"PROXY/g\">",
            ),
        ];
        for (page, expected) in cases {
            let expected = expected.replace("PROXY", "/api/v1/namespaces/a/services/s/proxy");
            for piece in [1, 3, 1000] {
                assert_eq!(rewritten(page, piece), expected, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_tag_without_an_end_is_not_collected() {
        let page = format!("<a {}", "x".repeat(TAG_BYTES_MAX * 2));
        assert_eq!(rewritten(&page, 1000), page);
    }
}
