//! Parameters of requests, in the path and in the query.

use std::borrow::Cow;

use meta::Str;

use super::{Describe, meta_v1};
use crate::{Node, NodeType};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: Str,
    pub location: ParamLocation,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// The definition of the options that it is a field of, which says what it means.
    pub options: Option<Str>,
    /// What it means, if the options don't say.
    pub description: Cow<'static, str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParamLocation {
    Path,
    Query,
}

impl Param {
    pub(super) fn path(name: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: Str::new_static(name),
            location: ParamLocation::Path,
            kind: "string",
            options: None,
            description: description.into(),
        }
    }

    /// A parameter that many requests have, by its name.
    pub(super) fn query(name: &str) -> Self {
        let (name, kind, description) =
            COMMON.iter().find(|(known, ..)| *known == name).expect("a parameter of the table");
        Self {
            name: Str::new_static(name),
            location: ParamLocation::Query,
            kind,
            options: None,
            description: Cow::Borrowed(description),
        }
    }

    /// One of them that is a field of a type of `meta/v1`: `ListOptions`.
    pub(super) fn option(options: &str, name: &str) -> Self {
        Self { options: Some(meta_v1(options)), ..Self::query(name) }
    }

    /// A parameter that is a field of an options type; `None` if it can't be given in a query.
    pub(super) fn of_field(options: &Str, name: &Str, node: &Node) -> Option<Self> {
        // A list is given by naming the parameter several times.
        let node = if let NodeType::List(item, _) = &node.kind { item } else { node };
        let kind = match node.kind {
            NodeType::String => "string",
            NodeType::Bool => "boolean",
            NodeType::Int32 | NodeType::Int64 => "integer",
            _ => return None,
        };
        let described = OPTIONS.iter().find(|(known, _)| known == name);
        let description = Cow::Borrowed(described.map_or("", |(_, description)| *description));
        let (name, options) = (name.clone(), Some(options.clone()));
        Some(Self { name, location: ParamLocation::Query, kind, options, description })
    }

    /// What the parameter means.
    pub(super) fn described<'a>(&'a self, describe: &'a dyn Describe) -> Cow<'a, str> {
        let options = self.options.as_ref();
        let text = options.and_then(|options| describe.field(options, &self.name));
        text.unwrap_or(Cow::Borrowed(&self.description))
    }

    pub fn required(&self) -> bool {
        self.location == ParamLocation::Path
    }
}

pub(super) const CREATE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

pub(super) const PATCH: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];

pub(super) const DELETE: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

pub(super) const LIST: [&str; 11] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];

/// The parameters of [`LIST`] that apply to deletecollection.
pub(super) fn select() -> impl Iterator<Item = &'static str> {
    LIST.into_iter().filter(|name| !["allowWatchBookmarks", "watch"].contains(name))
}

const COMMON: [(&str, &str, &str); 20] = [
    ("allowWatchBookmarks", "boolean", "Whether a watch may send bookmarks; it need not."),
    ("continue", "string", "Where to go on, as the previous part of a list said."),
    ("dryRun", "string", "With `All` nothing is stored, but everything else happens."),
    ("fieldManager", "string", "Who makes this change, for server-side apply."),
    ("fieldSelector", "string", "Only objects with these values of fields."),
    (
        "fieldValidation",
        "string",
        "What to do about unknown and duplicate fields: `Ignore`, `Warn` (the default) or `Strict`.",
    ),
    ("force", "boolean", "Whether an apply takes over fields that others own."),
    ("gracePeriodSeconds", "integer", "How long the object may take to shut down; 0 is at once."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Whether to delete an object even if it can't be read from the store. This is dangerous.",
    ),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "How many objects to answer at most; `continue` tells where to go on."),
    ("orphanDependents", "boolean", "Deprecated: use `propagationPolicy`."),
    ("pretty", "string", "With `true` the answer is indented for people to read."),
    (
        "propagationPolicy",
        "string",
        "What happens to the objects that this one owns: `Orphan`, `Background` or `Foreground`.",
    ),
    ("resourceVersion", "string", "How old the answer may be, or where a watch begins."),
    (
        "resourceVersionMatch",
        "string",
        "Whether `resourceVersion` is meant `Exact` or `NotOlderThan`.",
    ),
    ("sendInitialEvents", "boolean", "Whether a watch begins with what is there already."),
    ("shardSelector", "string", "Only objects of these shards."),
    ("timeoutSeconds", "integer", "When to end a list or watch, however far it got."),
    ("watch", "boolean", "Whether to go on with changes as they happen, instead of a list."),
];

/// What the options of connections and logs mean.
const OPTIONS: [(&str, &str); 17] = [
    ("command", "What to run, without a shell."),
    ("container", "In which container, if the pod has several."),
    ("follow", "Whether to go on with lines as they are written."),
    (
        "insecureSkipTLSVerifyBackend",
        "Whether to skip verification of the kubelet's serving certificate.",
    ),
    ("limitBytes", "How many bytes to answer at most."),
    ("path", "The path to connect to."),
    ("ports", "The ports to forward."),
    ("previous", "Whether the log is that of the container before its last restart."),
    ("sinceSeconds", "How old the first line may be."),
    ("stderr", "Whether to connect standard error."),
    ("stdin", "Whether to connect standard input."),
    ("stdout", "Whether to connect standard output."),
    ("stream", "Which stream to answer: `All`, `Stdout` or `Stderr`."),
    ("tailLines", "How many of the last lines to answer."),
    ("timestamps", "Whether each line begins with the time it was written at."),
    ("tty", "Whether there is a terminal on the client's side."),
    ("name", "The name of the object."),
];
