//! Text to a tree of nodes, aliases still unresolved.

use std::{borrow::Cow, collections::HashMap};

use meta::cancel::Steps;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{
    DEPTH_MAX, YamlError,
    reindent::{flow_entries, reindent},
};

/// The nodes of one document. They refer to each other by index.
#[derive(Debug, Default)]
pub(super) struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// None for a text without a document.
    pub(super) root: Option<NodeIndex>,
}

/// An index into [`Tree::nodes`].
pub(super) type NodeIndex = u32;

#[derive(Debug)]
pub(super) struct Node<'a> {
    /// Counted from one.
    pub(super) line: u32,
    pub(super) kind: NodeKind<'a>,
}

#[derive(Debug)]
pub(super) enum NodeKind<'a> {
    Scalar {
        text: Cow<'a, str>,
        /// `!!int`, `!local` …; empty if there is none.
        tag: Box<str>,
        /// Not quoted: its type follows from its text.
        plain: bool,
    },
    Sequence(Vec<NodeIndex>),
    /// Key, value, key, value …
    Mapping(Vec<NodeIndex>),
    /// Another node, which this one is not a part of.
    Alias(NodeIndex),
}

/// Entries of flow collections in one document. The parser keeps the tokens of a flow collection until
/// its end, some 500 bytes for each entry.
pub(super) const FLOW_ENTRIES_MAX: usize = 100_000;

/// Nodes of one document, keys included: some 250 bytes each until they are converted. The largest
/// objects that can be stored have some 180 000 where a line has an ordinary length.
pub(super) const NODES_MAX: usize = 190_000;

/// Anchors of one document: the parser keeps the name of each.
pub(super) const ANCHORS_MAX: usize = 10_000;

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

impl Tree<'_> {
    /// Reads the first document of a text and hands it to `read`. What follows it is not looked at.
    pub(super) fn load<T>(
        text: &str,
        read: impl Fn(&Tree<'_>) -> Result<T, YamlError>,
    ) -> Result<T, YamlError> {
        if flow_entries(text) > FLOW_ENTRIES_MAX {
            return Err(too_many(FLOW_ENTRIES_MAX, "flow entries"));
        }
        let failure = match Tree::load_once(text) {
            Ok(tree) => return read(&tree),
            Err(failure) => failure,
        };
        if failure.problem == Some(Problem::Indentation) {
            let reindented = reindent(text);
            let again = reindented.as_deref().and_then(|text| Tree::load_once(text).ok());
            if let Some(tree) = again {
                return read(&tree);
            }
        }
        Err(failure.error)
    }
}

impl<'a> Tree<'a> {
    fn load_once(text: &'a str) -> Result<Self, LoadFailure> {
        let mut loader = Loader {
            text,
            tree: Self::default(),
            open: Vec::new(),
            anchors: HashMap::new(),
            cycle: None,
        };
        let mut parser = Parser::new_from_str(text);
        let mut steps = Steps::default();
        while let Some(event) = parser.next_event() {
            steps.step();
            let (event, span) = event.map_err(|error| loader.failure_of(&error))?;
            if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
                break;
            }
            loader.event(event, span)?;
        }
        match loader.cycle {
            None => Ok(loader.tree),
            Some(cycle) => Err(cycle.into()),
        }
    }
}

/// Why a text was not loaded.
struct LoadFailure {
    error: YamlError,
    /// What the parser complained about, if it did.
    problem: Option<Problem>,
}

impl From<YamlError> for LoadFailure {
    fn from(error: YamlError) -> Self {
        Self { error, problem: None }
    }
}

/// What the parser complains about, where that matters here. The parser has only texts for it, which are
/// read here and nowhere else; a test has a document for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Indentation,
    UnknownAnchor,
    Depth,
    FlowSequence,
    SimpleKey,
    HexadecimalNumber,
    EndOfStream,
    ContentAfterQuoted,
    BlockScalarTab,
    TabIndentation,
    TabInScalar,
    TagHandle,
    UnexpectedCharacter,
}

impl Problem {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "found unknown anchor" => Self::UnknownAnchor,
            "recursion limit exceeded" => Self::Depth,
            "expected ',' or ']'" => Self::FlowSequence,
            "simple key expected" | "simple key expect ':'" => Self::SimpleKey,
            "did not find expected hexadecimal number" => Self::HexadecimalNumber,
            "found unexpected end of stream" => Self::EndOfStream,
            "invalid trailing content after double-quoted scalar" => Self::ContentAfterQuoted,
            "a block scalar content cannot start with a tab" => Self::BlockScalarTab,
            "tab cannot be used as indentation"
            | "tabs disallowed in this context"
            | "tabs disallowed within this context (block indentation)" => Self::TabIndentation,
            "found a tab" => Self::TabInScalar,
            "the handle wasn't declared" => Self::TagHandle,
            other if other.starts_with("unexpected character: ") => Self::UnexpectedCharacter,
            other if other.contains("invalid indentation") => Self::Indentation,
            _ => return None,
        })
    }

    /// Whether go-yaml's parser would report it, and not its scanner.
    fn is_in_parser(context: &str) -> bool {
        context.starts_with("while parsing a")
            && !context.contains("quoted")
            && !context.contains("tag")
    }
}

struct Loader<'a> {
    text: &'a str,
    tree: Tree<'a>,
    /// Containers that are not closed yet.
    open: Vec<NodeIndex>,
    /// By the parser's number for an anchor.
    anchors: HashMap<usize, NodeIndex>,
    /// The first alias inside of what it stands for. Errors of the parser come first.
    cycle: Option<YamlError>,
}

impl<'a> Loader<'a> {
    fn event(&mut self, event: Event<'a>, span: Span) -> Result<(), YamlError> {
        if self.tree.nodes.len() >= NODES_MAX {
            return Err(too_many(NODES_MAX, "nodes"));
        }
        if self.anchors.len() > ANCHORS_MAX {
            return Err(too_many(ANCHORS_MAX, "anchors"));
        }
        let line = span.start.line() as u32;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| tag_name(&tag).into_boxed_str()).unwrap_or_default();
                let plain = style == ScalarStyle::Plain && tag.is_empty();
                self.add(line, NodeKind::Scalar { text, tag, plain }, anchor);
            }
            Event::Alias(anchor) => {
                // The name is only looked for where it is needed: for each alias of a long line, that
                // would be a walk over the text before it.
                let Some(&target) = self.anchors.get(&anchor) else {
                    return Err(unknown_anchor(&self.name_at(span.start)));
                };
                if self.cycle.is_none() && self.open.contains(&target) {
                    let name = self.name_at(span.start);
                    let why = format!("anchor '{name}' value contains itself");
                    self.cycle = Some(YamlError::Yaml(why));
                }
                self.add(line, NodeKind::Alias(target), 0);
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

    fn add(&mut self, line: u32, kind: NodeKind<'a>, anchor: usize) -> NodeIndex {
        let node = self.tree.nodes.len() as NodeIndex;
        self.tree.nodes.push(Node { line, kind });
        if anchor != 0 {
            self.anchors.insert(anchor, node);
        }
        match self.open.last() {
            None => self.tree.root = Some(node),
            Some(&parent) => match &mut self.tree.nodes[parent as usize].kind {
                NodeKind::Sequence(children) | NodeKind::Mapping(children) => children.push(node),
                _ => {}
            },
        }
        node
    }

    fn enter(&mut self, node: NodeIndex) -> Result<(), YamlError> {
        self.open.push(node);
        if self.open.len() > DEPTH_MAX { Err(too_deep()) } else { Ok(()) }
    }

    fn failure_of(&self, error: &ScanError) -> LoadFailure {
        let (context, problem) = error.info().split_once(", ").unwrap_or(("", error.info()));
        let of_text = Problem::of(problem);
        let error = self.go_yaml_error(context, problem, of_text, *error.marker());
        LoadFailure { error, problem: of_text }
    }

    /// The parser's complaint in go-yaml's words.
    fn go_yaml_error(
        &self,
        context: &str,
        text: &str,
        problem: Option<Problem>,
        place: Marker,
    ) -> YamlError {
        // The parser counts lines from one, go-yaml from zero and omits the line if it is the
        // first. go-yaml adds one to lines from its scanner, but not to those from its parser.
        let mut line = place.line();
        let mut in_parser = Problem::is_in_parser(context);
        let message = match problem {
            Some(Problem::UnknownAnchor) => return unknown_anchor(&self.name_at(place)),
            Some(Problem::Depth) => return too_deep(),
            Some(Problem::FlowSequence) => "did not find expected ',' or ']'",
            Some(Problem::SimpleKey) => "could not find expected ':'",
            Some(Problem::HexadecimalNumber) => "did not find expected hexdecimal number",
            Some(Problem::EndOfStream) => {
                // Noticed there, and not where the text began.
                line = self.text.matches('\n').count() + 1;
                text
            }
            Some(Problem::ContentAfterQuoted) => {
                in_parser = true;
                "did not find expected key"
            }
            Some(Problem::BlockScalarTab) => {
                "found a tab character where an indentation space is expected"
            }
            Some(Problem::TabIndentation | Problem::UnexpectedCharacter) => {
                "found character that cannot start any token"
            }
            Some(Problem::TabInScalar) => {
                // Noticed where the tab is, and not where the text before it began.
                let tab = self.text.lines().position(|line| line.starts_with('\t'));
                line = tab.map_or(line, |tab| tab + 1);
                "found a tab character that violates indentation"
            }
            Some(Problem::TagHandle) => "found undefined tag handle",
            Some(Problem::Indentation) | None => text,
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

pub(super) fn too_many(most: usize, what: &str) -> YamlError {
    YamlError::Yaml(format!("exceeded max number of {what} of {most}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser's texts are its own to change: then this fails, and not a client.
    #[test]
    fn every_problem_of_the_parser_is_recognized() {
        let cases = [
            ("a: [\n]\n", Problem::Indentation),
            ("a: *b\n", Problem::UnknownAnchor),
            ("a: \"\\xzz\"\n", Problem::HexadecimalNumber),
            ("a: \"b\n", Problem::EndOfStream),
            ("a: \"b\" c\n", Problem::ContentAfterQuoted),
            ("a: !b!c d\n", Problem::TagHandle),
            ("a: @b\n", Problem::UnexpectedCharacter),
        ];
        let mut wrong = Vec::new();
        for (text, expected) in cases {
            let found = Tree::load_once(text).err().and_then(|failure| failure.problem);
            if found != Some(expected) {
                wrong.push((text, expected, found));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
