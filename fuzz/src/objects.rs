//! Random objects of any type, from the schema alone.

use meta::{
    Map, RawJson, Str, Value,
    quantity::Quantity,
    time::{Duration, Time},
};
use schema::{Field, Node, NodeType, Schema, TypeId};

use crate::Random;

/// Makes objects.
pub struct Objects<'a> {
    pub schema: &'a Schema,
    /// Only values that every format can distinguish from absent ones: no empty list, no empty map,
    /// no null.
    pub settled: bool,
    /// Of a hundred fields of the object itself so many are set.
    pub top_percent: usize,
    /// Of a hundred fields inside of it; fewer further down.
    pub filled_percent: usize,
}

impl<'a> Objects<'a> {
    pub fn new(schema: &'a Schema) -> Self {
        Self { schema, settled: true, top_percent: 60, filled_percent: 60 }
    }

    /// An object of a type, with its kind and version if it is one that has them.
    pub fn object(&self, ty: TypeId, random: &mut Random) -> Value {
        let mut object = self.part(ty, 0, random);
        if let Some(gvk) = self.schema.get(ty).kinds.first() {
            object.set_at(&["kind"], gvk.kind.clone());
            object.set_at(&["apiVersion"], gvk.group_version().to_string());
        }
        object
    }

    fn part(&self, ty: TypeId, depth: usize, random: &mut Random) -> Value {
        let ty = self.schema.get(ty);
        let fields = ty.fields.iter().filter(|field| !is_type_meta(field));
        let mut members = Vec::new();
        for field in fields {
            if let Some(value) = self.field(field, depth, random) {
                members.push((field.name.clone(), value));
            }
        }
        Value::Object(Map::from_pairs(members))
    }

    fn field(&self, field: &Field, depth: usize, random: &mut Random) -> Option<Value> {
        // Objects hold objects: without getting sparser on the way down none of them would end.
        let percent = match depth {
            0 => self.top_percent,
            1 => self.filled_percent,
            _ => self.filled_percent / depth,
        };
        if !random.chance(percent) {
            return None;
        }
        if !self.settled && random.chance(5) {
            return Some(Value::Null);
        }
        self.value(&field.node, depth, random)
    }

    fn value(&self, node: &Node, depth: usize, random: &mut Random) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        Some(match &node.kind {
            NodeType::Object(ty) => self.part(*ty, depth + 1, random),
            NodeType::List(item, _) => Value::Array(self.several(item, depth, random)?),
            NodeType::Map(item) => {
                let values = self.several(item, depth, random)?;
                let keyed = values.into_iter().map(|value| (Str::from(random.text()), value));
                Value::Object(Map::from_pairs(keyed.collect()))
            }
            NodeType::SchemaOrBool(_) if random.chance(50) => Value::from(random.chance(50)),
            NodeType::SchemaOrArray(ty) if random.chance(50) => {
                let count = random.some(2);
                Value::Array((0..count).map(|_| self.part(*ty, depth + 2, random)).collect())
            }
            NodeType::SchemaOrStringArray(_) if random.chance(50) => {
                Value::Array((0..random.some(2)).map(|_| Value::from(random.text())).collect())
            }
            NodeType::SchemaOrBool(ty)
            | NodeType::SchemaOrArray(ty)
            | NodeType::SchemaOrStringArray(ty) => self.part(*ty, depth + 2, random),
            NodeType::AnyObject => any_object(random, 0),
            NodeType::Any => any(random, 0),
            NodeType::Raw => match any(random, 0) {
                Value::Null => Value::Null,
                tree => RawJson::new(meta::json::to_string(&tree), tree).into(),
            },
            NodeType::String if !node.enum_values.is_empty() && random.chance(80) => {
                Value::String(random.pick(&node.enum_values).clone())
            }
            leaf => leaf_value(leaf, random),
        })
    }

    fn several(&self, item: &Node, depth: usize, random: &mut Random) -> Option<Vec<Value>> {
        let least = usize::from(self.settled);
        let count = random.below(3).max(least);
        let items: Vec<Value> =
            (0..count).filter_map(|_| self.value(item, depth + 1, random)).collect();
        (items.len() >= least).then_some(items)
    }
}

/// Deeper than any type but the recursive ones.
const DEPTH_MAX: usize = 14;

fn is_type_meta(field: &Field) -> bool {
    field.tag == 0 && matches!(field.name.as_str(), "kind" | "apiVersion")
}

/// As it would be printed: the shortest spelling of what it means.
fn leaf_value(kind: &NodeType, random: &mut Random) -> Value {
    match kind {
        NodeType::Bool => Value::from(random.chance(50)),
        NodeType::Int32 => Value::from(i64::from(random.integer() as i32)),
        NodeType::Int64 => Value::from(random.integer()),
        NodeType::Double => match random.below(3) {
            0 => Value::from(random.integer() >> 20),
            1 => Value::from((random.integer() >> 12) as f64 / 1024.0),
            _ => {
                let number = f64::from_bits(random.draw());
                Value::from(if number.is_normal() { number } else { 0.5 })
            }
        },
        NodeType::Bytes => {
            let bytes: Vec<u8> = (0..random.below(8)).map(|_| random.draw() as u8).collect();
            Value::from(codec::base64::encode(&bytes))
        }
        NodeType::Time => Value::from(time(random).to_rfc3339()),
        NodeType::MicroTime => Value::from(time(random).to_rfc3339_micro()),
        NodeType::Duration => Value::from(Duration { nanos: random.integer() }.to_string()),
        NodeType::Quantity => Value::from(quantity(random).to_string()),
        NodeType::IntOrString if random.chance(50) => {
            Value::from(i64::from(random.integer() as i32))
        }
        _ => Value::from(random.text()),
    }
}

/// From the year 2 to 9999: the first second of year 1 stands for no time at all.
fn time(random: &mut Random) -> Time {
    const YEAR_2: i64 = -62_104_060_800;
    const YEAR_10000: i64 = 253_402_300_800;
    let span = (YEAR_10000 - YEAR_2) as usize;
    Time::from_unix(YEAR_2 + random.below(span) as i64, random.below(1_000_000) as u32 * 1000)
}

fn quantity(random: &mut Random) -> Quantity {
    const SUFFIXES: [&str; 15] =
        ["", "m", "k", "M", "G", "E", "Ki", "Mi", "Gi", "Ei", "n", "u", "e3", "e-3", "P"];
    let number = random.integer() >> random.below(60);
    let fraction =
        if random.chance(30) { format!(".{}", random.below(1000)) } else { String::new() };
    let text = format!("{number}{fraction}{}", random.pick(&SUFFIXES));
    Quantity::parse(&text).unwrap_or_else(|_| Quantity::parse("1").expect("a quantity"))
}

/// Any JSON but null, which as a whole value means absent.
pub fn any(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth > 3 { 4 } else { 8 }) {
        0 => Value::from(random.chance(50)),
        1 => Value::from(random.integer()),
        2 => Value::from((random.integer() >> 12) as f64 / 8.0 + 0.0625),
        3 => Value::from(random.text()),
        4 => Value::Array((0..random.below(4)).map(|_| any(random, depth + 1)).collect()),
        _ => any_object(random, depth),
    }
}

/// Any JSON object.
pub fn any_object(random: &mut Random, depth: usize) -> Value {
    let count = random.below(4);
    let members = (0..count).map(|_| (Str::from(random.text()), any(random, depth + 1)));
    Value::Object(Map::from_pairs(members.collect()))
}
