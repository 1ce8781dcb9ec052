//! Text to a tree of nodes, aliases still unresolved.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{DEPTH_MAX, YamlError, reindent::reindent};

/// The nodes of one document. They refer to each other by index.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// None for a text without a document.
    pub(super) root: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// Counted from one.
    pub(super) line: usize,
    pub(super) kind: NodeKind,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Scalar {
        text: String,
        /// `!!int`, `!local` …; empty if there is none.
        tag: String,
        /// Not quoted: its type follows from its text.
        plain: bool,
    },
    Sequence(Vec<usize>),
    /// Key, value, key, value …
    Mapping(Vec<usize>),
    Alias {
        name: String,
        target: usize,
    },
}

/// The text, if go-yaml's reader lets all of its characters through.
pub(super) fn readable(bytes: &[u8]) -> Result<&str, YamlError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| YamlError::Yaml("invalid leading UTF-8 octet".to_owned()))?;
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{A0}'..='\u{FFFD}' | '\u{1_0000}'..);
    if !text.chars().all(allowed) {
        return Err(YamlError::Yaml("control characters are not allowed".to_owned()));
    }
    Ok(text)
}

impl Tree {
    /// Reads the first document. What follows it is not looked at.
    pub(super) fn load(text: &str) -> Result<Self, YamlError> {
        match Self::load_once(text) {
            Err(error) if error.to_string().contains("invalid indentation") => {
                let again = reindent(text).and_then(|text| Self::load_once(&text).ok());
                again.ok_or(error)
            }
            loaded => loaded,
        }
    }

    fn load_once(text: &str) -> Result<Self, YamlError> {
        let mut loader =
            Loader { text, tree: Self::default(), open: Vec::new(), anchors: HashMap::new() };
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| loader.words_of(&error))?;
            if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
                break;
            }
            loader.event(event, span)?;
        }
        Ok(loader.tree)
    }
}

struct Loader<'a> {
    text: &'a str,
    tree: Tree,
    /// Containers that are not closed yet.
    open: Vec<usize>,
    /// By the parser's number for an anchor.
    anchors: HashMap<usize, usize>,
}

impl Loader<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| tag_name(&tag)).unwrap_or_default();
                let plain = style == ScalarStyle::Plain && tag.is_empty();
                let kind = NodeKind::Scalar { text: text.into_owned(), tag, plain };
                self.add(line, kind, anchor);
            }
            Event::Alias(anchor) => {
                let name = self.name_at(span.start);
                let Some(&target) = self.anchors.get(&anchor) else {
                    return Err(unknown_anchor(&name));
                };
                self.add(line, NodeKind::Alias { name, target }, 0);
            }
            Event::SequenceStart(anchor, _) => {
                let node = self.add(line, NodeKind::Sequence(Vec::new()), anchor);
                self.enter(node)?;
            }
            Event::MappingStart(anchor, _) => {
                let node = self.add(line, NodeKind::Mapping(Vec::new()), anchor);
                self.enter(node)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn add(&mut self, line: usize, kind: NodeKind, anchor: usize) -> usize {
        let node = self.tree.nodes.len();
        self.tree.nodes.push(Node { line, kind });
        if anchor != 0 {
            self.anchors.insert(anchor, node);
        }
        match self.open.last() {
            None => self.tree.root = Some(node),
            Some(&parent) => match &mut self.tree.nodes[parent].kind {
                NodeKind::Sequence(children) | NodeKind::Mapping(children) => children.push(node),
                _ => {}
            },
        }
        node
    }

    fn enter(&mut self, node: usize) -> Result<(), YamlError> {
        self.open.push(node);
        if self.open.len() > DEPTH_MAX { Err(too_deep()) } else { Ok(()) }
    }

    /// The parser's complaint in go-yaml's words.
    fn words_of(&self, error: &ScanError) -> YamlError {
        let info = error.info();
        let (context, problem) = info.split_once(", ").unwrap_or(("", info));
        // The parser counts lines from one, go-yaml from zero and omits the line if it is the
        // first. go-yaml adds one to lines from its scanner, but not to those from its parser.
        let mut line = error.marker().line();
        let mut in_parser = context.starts_with("while parsing a")
            && !context.contains("quoted")
            && !context.contains("tag");
        let message = match problem {
            "found unknown anchor" => return unknown_anchor(&self.name_at(*error.marker())),
            "recursion limit exceeded" => return too_deep(),
            "expected ',' or ']'" => "did not find expected ',' or ']'",
            "simple key expected" | "simple key expect ':'" => "could not find expected ':'",
            "did not find expected hexadecimal number" => "did not find expected hexdecimal number",
            "found unexpected end of stream" => {
                // Noticed there, and not where the text began.
                line = self.text.matches('\n').count() + 1;
                problem
            }
            "invalid trailing content after double-quoted scalar" => {
                in_parser = true;
                "did not find expected key"
            }
            "a block scalar content cannot start with a tab" => {
                "found a tab character where an indentation space is expected"
            }
            "tab cannot be used as indentation"
            | "tabs disallowed in this context"
            | "tabs disallowed within this context (block indentation)" => {
                "found character that cannot start any token"
            }
            "found a tab" => {
                // Noticed where the tab is, and not where the text before it began.
                let tab = self.text.lines().position(|line| line.starts_with('\t'));
                line = tab.map_or(line, |tab| tab + 1);
                "found a tab character that violates indentation"
            }
            "the handle wasn't declared" => "found undefined tag handle",
            other if other.starts_with("unexpected character: ") => {
                "found character that cannot start any token"
            }
            other => other,
        };
        let message = message.to_owned();
        line = line.saturating_sub(usize::from(in_parser));
        if line < 2 && !in_parser || line == 0 {
            return YamlError::Yaml(message);
        }
        YamlError::YamlLine { line, message }
    }

    /// The name of the anchor or alias at an offset.
    fn name_at(&self, place: Marker) -> String {
        let line = self.text.lines().nth(place.line().saturating_sub(1)).unwrap_or_default();
        let name = line.chars().skip(place.col()).skip_while(|c| *c == '*');
        name.take_while(|c| !c.is_whitespace() && !",[]{}:".contains(*c)).collect()
    }
}

fn unknown_anchor(name: &str) -> YamlError {
    YamlError::Yaml(format!("unknown anchor '{name}' referenced"))
}

pub(super) fn too_deep() -> YamlError {
    YamlError::Yaml(format!("exceeded max depth of {DEPTH_MAX}"))
}

/// A tag in its short form.
fn tag_name(tag: &Tag) -> String {
    if tag.is_yaml_core_schema() {
        return format!("!!{}", tag.suffix);
    }
    format!("{}{}", tag.handle, tag.suffix)
}
