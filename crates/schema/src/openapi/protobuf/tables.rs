//! Which member of a document has which field number. Members that no document of ours has are left
//! out.

use super::Message::{self, Holding, Named, Object, OrReference, Parameter};
use super::Shape::{Any, Anys, Flag, Many, One, Scalar, Text, Texts};

pub(crate) static V2_SECURITY: Message = Named(1, &Holding(1, &Texts));

pub(crate) static V2_SECURITY_DEFINITIONS: Message = Named(1, &Holding(2, &One(&V2_API_KEY)));

pub(crate) static V2_INFO: Message =
    Object { members: &[("title", 1, Text), ("version", 2, Text)], extensions: 7 };

static V2_API_KEY: Message = Object {
    members: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
    extensions: 5,
};

pub(crate) static V2_PATH: Message = Object {
    members: &[
        ("get", 2, One(&V2_OPERATION)),
        ("put", 3, One(&V2_OPERATION)),
        ("post", 4, One(&V2_OPERATION)),
        ("delete", 5, One(&V2_OPERATION)),
        ("options", 6, One(&V2_OPERATION)),
        ("head", 7, One(&V2_OPERATION)),
        ("patch", 8, One(&V2_OPERATION)),
        ("parameters", 9, Many(&OrReference(&Parameter))),
    ],
    extensions: 10,
};

static V2_OPERATION: Message = Object {
    members: &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Many(&OrReference(&Parameter))),
        ("responses", 9, One(&Named(1, &OrReference(&V2_RESPONSE)))),
        ("schemes", 10, Texts),
        ("deprecated", 11, Flag),
    ],
    extensions: 13,
};

static V2_RESPONSE: Message = Object {
    members: &[("description", 1, Text), ("schema", 2, One(&Holding(1, &One(&V2_SCHEMA))))],
    extensions: 5,
};

pub(crate) static V2_BODY: Message = Object {
    members: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Flag),
        ("schema", 5, One(&V2_SCHEMA)),
    ],
    extensions: 6,
};

pub(crate) static V2_QUERY_PARAMETER: Message = Object {
    members: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("format", 7, Text),
        ("uniqueItems", 20, Flag),
    ],
    extensions: 23,
};

pub(crate) static V2_PATH_PARAMETER: Message = Object {
    members: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("uniqueItems", 19, Flag),
    ],
    extensions: 22,
};

static V2_SCHEMAS: Message = Named(1, &V2_SCHEMA);

pub(crate) static V2_SCHEMA: Message = Object {
    members: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("pattern", 13, Text),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, One(&Holding(1, &One(&V2_SCHEMA)))),
        ("type", 22, One(&Holding(1, &Text))),
        ("items", 23, One(&Holding(1, &One(&V2_SCHEMA)))),
        ("allOf", 24, Many(&V2_SCHEMA)),
        ("properties", 25, One(&V2_SCHEMAS)),
    ],
    extensions: 31,
};

/// The same in v2 and v3, but for the number of the description, which no reference of ours has.
pub(crate) static REFERENCE: Message = Object { members: &[("$ref", 1, Text)], extensions: 0 };

pub(crate) static V3_INFO: Message =
    Object { members: &[("title", 1, Text), ("version", 6, Text)], extensions: 7 };

pub(crate) static V3_SECURITY: Message = Named(1, &OrReference(&V3_API_KEY));

static V3_API_KEY: Message = Object {
    members: &[("type", 1, Text), ("description", 2, Text), ("name", 3, Text), ("in", 4, Text)],
    extensions: 9,
};

pub(crate) static V3_PATH: Message = Object {
    members: &[
        ("get", 4, One(&V3_OPERATION)),
        ("put", 5, One(&V3_OPERATION)),
        ("post", 6, One(&V3_OPERATION)),
        ("delete", 7, One(&V3_OPERATION)),
        ("options", 8, One(&V3_OPERATION)),
        ("head", 9, One(&V3_OPERATION)),
        ("patch", 10, One(&V3_OPERATION)),
        ("parameters", 13, Many(&OrReference(&V3_PARAMETER))),
    ],
    extensions: 14,
};

static V3_OPERATION: Message = Object {
    members: &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("parameters", 6, Many(&OrReference(&V3_PARAMETER))),
        ("requestBody", 7, One(&OrReference(&V3_BODY))),
        ("responses", 8, One(&Named(2, &OrReference(&V3_RESPONSE)))),
        ("deprecated", 10, Flag),
    ],
    extensions: 13,
};

static V3_PARAMETER: Message = Object {
    members: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Flag),
        ("schema", 10, One(&V3_SCHEMA_OR_REFERENCE)),
    ],
    extensions: 14,
};

static V3_BODY: Message = Object {
    members: &[("description", 1, Text), ("content", 2, One(&V3_CONTENT)), ("required", 3, Flag)],
    extensions: 4,
};

static V3_RESPONSE: Message = Object {
    members: &[("description", 1, Text), ("content", 3, One(&V3_CONTENT))],
    extensions: 5,
};

static V3_CONTENT: Message = Named(1, &V3_MEDIA_TYPE);

static V3_MEDIA_TYPE: Message =
    Object { members: &[("schema", 1, One(&V3_SCHEMA_OR_REFERENCE))], extensions: 5 };

static V3_SCHEMAS: Message = Named(1, &V3_SCHEMA_OR_REFERENCE);

pub(crate) static V3_SCHEMA_OR_REFERENCE: Message = OrReference(&V3_SCHEMA);

static V3_SCHEMA: Message = Object {
    members: &[
        ("nullable", 1, Flag),
        ("title", 9, Text),
        ("pattern", 17, Text),
        ("uniqueItems", 20, Flag),
        ("required", 23, Texts),
        ("enum", 24, Anys),
        ("type", 25, Text),
        ("allOf", 26, Many(&V3_SCHEMA_OR_REFERENCE)),
        ("oneOf", 27, Many(&V3_SCHEMA_OR_REFERENCE)),
        ("anyOf", 28, Many(&V3_SCHEMA_OR_REFERENCE)),
        ("items", 30, One(&Holding(1, &One(&V3_SCHEMA_OR_REFERENCE)))),
        ("properties", 31, One(&V3_SCHEMAS)),
        ("additionalProperties", 32, One(&Holding(1, &One(&V3_SCHEMA_OR_REFERENCE)))),
        ("default", 33, Scalar),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    extensions: 36,
};
