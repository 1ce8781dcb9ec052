//! The functions that `transformMap` and `transformMapEntry` expand to; the planner turns most of
//! them into an in-place insertion.

use super::{A, B};
use crate::functions::Functions;
use crate::ops::insert;
use crate::types::Type;
use crate::value::{NO_SUCH_OVERLOAD, Val};

pub(super) fn declare(f: &mut Functions) {
    let map = Type::map(A, B);
    let entry = [map.clone(), A, B];
    f.global(
        "cel.@mapInsert",
        "@mapInsert_map_key_value",
        &entry,
        map.clone(),
        |args| match args {
            [Val::Map(map), key, value] => insert(map.clone(), key, value.clone()).map(Val::Map),
            _ => Err(NO_SUCH_OVERLOAD),
        },
    );
    let maps = [map.clone(), map.clone()];
    f.global("cel.@mapInsert", "@mapInsert_map_map", &maps, map, |args| match args {
        [Val::Map(map), Val::Map(more)] => more
            .keys()
            .iter()
            .try_fold(map.clone(), |map, key| insert(map, key, more.find(key)?.unwrap_or_default()))
            .map(Val::Map),
        _ => Err(NO_SUCH_OVERLOAD),
    });
}
