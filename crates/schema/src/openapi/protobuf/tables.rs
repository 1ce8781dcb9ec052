//! Which member of a document has which field number. Members that no document of ours has are left
//! out.

use super::FieldEncoding::{
    Any, Bool, RepeatedAny, RepeatedMessage, RepeatedString, Scalar, String, SubMessage,
};
use super::Message::{self, NamedValues, Object, OrReference, Parameter, Wrapper};

pub(crate) static V2_SECURITY: Message = NamedValues(1, &Wrapper(1, &RepeatedString));

pub(crate) static V2_SECURITY_DEFINITIONS: Message =
    NamedValues(1, &Wrapper(2, &SubMessage(&V2_API_KEY)));

pub(crate) static V2_INFO: Message =
    Object { members: &[("title", 1, String), ("version", 2, String)], extensions: 7 };

static V2_API_KEY: Message = Object {
    members: &[
        ("type", 1, String),
        ("name", 2, String),
        ("in", 3, String),
        ("description", 4, String),
    ],
    extensions: 5,
};

pub(crate) static V2_PATH: Message = Object {
    members: &[
        ("get", 2, SubMessage(&V2_OPERATION)),
        ("put", 3, SubMessage(&V2_OPERATION)),
        ("post", 4, SubMessage(&V2_OPERATION)),
        ("delete", 5, SubMessage(&V2_OPERATION)),
        ("options", 6, SubMessage(&V2_OPERATION)),
        ("head", 7, SubMessage(&V2_OPERATION)),
        ("patch", 8, SubMessage(&V2_OPERATION)),
        ("parameters", 9, RepeatedMessage(&OrReference(&Parameter))),
    ],
    extensions: 10,
};

static V2_OPERATION: Message = Object {
    members: &[
        ("tags", 1, RepeatedString),
        ("summary", 2, String),
        ("description", 3, String),
        ("operationId", 5, String),
        ("produces", 6, RepeatedString),
        ("consumes", 7, RepeatedString),
        ("parameters", 8, RepeatedMessage(&OrReference(&Parameter))),
        ("responses", 9, SubMessage(&NamedValues(1, &OrReference(&V2_RESPONSE)))),
        ("schemes", 10, RepeatedString),
        ("deprecated", 11, Bool),
    ],
    extensions: 13,
};

static V2_RESPONSE: Message = Object {
    members: &[
        ("description", 1, String),
        ("schema", 2, SubMessage(&Wrapper(1, &SubMessage(&V2_SCHEMA)))),
    ],
    extensions: 5,
};

pub(crate) static V2_BODY: Message = Object {
    members: &[
        ("description", 1, String),
        ("name", 2, String),
        ("in", 3, String),
        ("required", 4, Bool),
        ("schema", 5, SubMessage(&V2_SCHEMA)),
    ],
    extensions: 6,
};

pub(crate) static V2_QUERY_PARAMETER: Message = Object {
    members: &[
        ("required", 1, Bool),
        ("in", 2, String),
        ("description", 3, String),
        ("name", 4, String),
        ("type", 6, String),
        ("format", 7, String),
        ("uniqueItems", 20, Bool),
    ],
    extensions: 23,
};

pub(crate) static V2_PATH_PARAMETER: Message = Object {
    members: &[
        ("required", 1, Bool),
        ("in", 2, String),
        ("description", 3, String),
        ("name", 4, String),
        ("type", 5, String),
        ("format", 6, String),
        ("uniqueItems", 19, Bool),
    ],
    extensions: 22,
};

static V2_SCHEMAS: Message = NamedValues(1, &V2_SCHEMA);

pub(crate) static V2_SCHEMA: Message = Object {
    members: &[
        ("$ref", 1, String),
        ("format", 2, String),
        ("title", 3, String),
        ("description", 4, String),
        ("default", 5, Any),
        ("pattern", 13, String),
        ("required", 19, RepeatedString),
        ("enum", 20, RepeatedAny),
        ("additionalProperties", 21, SubMessage(&Wrapper(1, &SubMessage(&V2_SCHEMA)))),
        ("type", 22, SubMessage(&Wrapper(1, &String))),
        ("items", 23, SubMessage(&Wrapper(1, &SubMessage(&V2_SCHEMA)))),
        ("allOf", 24, RepeatedMessage(&V2_SCHEMA)),
        ("properties", 25, SubMessage(&V2_SCHEMAS)),
    ],
    extensions: 31,
};

/// The same in v2 and v3, but for the number of the description, which no reference of ours has.
pub(crate) static REFERENCE: Message = Object { members: &[("$ref", 1, String)], extensions: 0 };

pub(crate) static V3_INFO: Message =
    Object { members: &[("title", 1, String), ("version", 6, String)], extensions: 7 };

pub(crate) static V3_SECURITY: Message = NamedValues(1, &OrReference(&V3_API_KEY));

static V3_API_KEY: Message = Object {
    members: &[
        ("type", 1, String),
        ("description", 2, String),
        ("name", 3, String),
        ("in", 4, String),
    ],
    extensions: 9,
};

pub(crate) static V3_PATH: Message = Object {
    members: &[
        ("get", 4, SubMessage(&V3_OPERATION)),
        ("put", 5, SubMessage(&V3_OPERATION)),
        ("post", 6, SubMessage(&V3_OPERATION)),
        ("delete", 7, SubMessage(&V3_OPERATION)),
        ("options", 8, SubMessage(&V3_OPERATION)),
        ("head", 9, SubMessage(&V3_OPERATION)),
        ("patch", 10, SubMessage(&V3_OPERATION)),
        ("parameters", 13, RepeatedMessage(&OrReference(&V3_PARAMETER))),
    ],
    extensions: 14,
};

static V3_OPERATION: Message = Object {
    members: &[
        ("tags", 1, RepeatedString),
        ("summary", 2, String),
        ("description", 3, String),
        ("operationId", 5, String),
        ("parameters", 6, RepeatedMessage(&OrReference(&V3_PARAMETER))),
        ("requestBody", 7, SubMessage(&OrReference(&V3_BODY))),
        ("responses", 8, SubMessage(&NamedValues(2, &OrReference(&V3_RESPONSE)))),
        ("deprecated", 10, Bool),
    ],
    extensions: 13,
};

static V3_PARAMETER: Message = Object {
    members: &[
        ("name", 1, String),
        ("in", 2, String),
        ("description", 3, String),
        ("required", 4, Bool),
        ("schema", 10, SubMessage(&V3_SCHEMA_OR_REFERENCE)),
    ],
    extensions: 14,
};

static V3_BODY: Message = Object {
    members: &[
        ("description", 1, String),
        ("content", 2, SubMessage(&V3_CONTENT)),
        ("required", 3, Bool),
    ],
    extensions: 4,
};

static V3_RESPONSE: Message = Object {
    members: &[("description", 1, String), ("content", 3, SubMessage(&V3_CONTENT))],
    extensions: 5,
};

static V3_CONTENT: Message = NamedValues(1, &V3_MEDIA_TYPE);

static V3_MEDIA_TYPE: Message =
    Object { members: &[("schema", 1, SubMessage(&V3_SCHEMA_OR_REFERENCE))], extensions: 5 };

static V3_SCHEMAS: Message = NamedValues(1, &V3_SCHEMA_OR_REFERENCE);

pub(crate) static V3_SCHEMA_OR_REFERENCE: Message = OrReference(&V3_SCHEMA);

static V3_SCHEMA: Message = Object {
    members: &[
        ("nullable", 1, Bool),
        ("title", 9, String),
        ("pattern", 17, String),
        ("uniqueItems", 20, Bool),
        ("required", 23, RepeatedString),
        ("enum", 24, RepeatedAny),
        ("type", 25, String),
        ("allOf", 26, RepeatedMessage(&V3_SCHEMA_OR_REFERENCE)),
        ("oneOf", 27, RepeatedMessage(&V3_SCHEMA_OR_REFERENCE)),
        ("anyOf", 28, RepeatedMessage(&V3_SCHEMA_OR_REFERENCE)),
        ("items", 30, SubMessage(&Wrapper(1, &SubMessage(&V3_SCHEMA_OR_REFERENCE)))),
        ("properties", 31, SubMessage(&V3_SCHEMAS)),
        ("additionalProperties", 32, SubMessage(&Wrapper(1, &SubMessage(&V3_SCHEMA_OR_REFERENCE)))),
        ("default", 33, Scalar),
        ("description", 34, String),
        ("format", 35, String),
    ],
    extensions: 36,
};
