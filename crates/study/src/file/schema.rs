//! A JSON Schema of what a type reads, made from the type: it is given a made-up file in which each of its keys stands once, and what it asks
//! for there is noted. A key is required where a file without it is refused.
//!
//! Does not see what is checked afterwards, such as the range of a number, nor into values of any kind.

use std::collections::BTreeSet;

use serde::de::value::{BorrowedStrDeserializer, Error};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde_json::{Map, Value, json};

/// A type that reads a table, and a key of it.
type Key = (&'static str, &'static str);

/// What names of types begin with that are a value and its place.
const SPANNED: &str = "$__serde_spanned";

/// The schema of what `T` reads.
pub(super) fn of<T: DeserializeOwned>() -> Value {
    let made = |without: Option<Key>, required: &BTreeSet<Key>, keys: &mut Vec<Key>| {
        let mut schema = json!({});
        T::deserialize(Tracer { schema: &mut schema, keys, without, required }).map(|_| schema)
    };
    let (none, mut keys) = (BTreeSet::new(), Vec::new());
    // The types of a form take what is made up; a test says so.
    let _ = made(None, &none, &mut keys);
    let is_required = |key: &Key| made(Some(*key), &none, &mut Vec::new()).is_err();
    let required: BTreeSet<Key> = keys.into_iter().filter(is_required).collect();
    made(None, &required, &mut Vec::new()).unwrap_or_default()
}

/// Makes a value up for a type, and notes what it is.
struct Tracer<'a> {
    schema: &'a mut Value,
    /// Those that were asked for.
    keys: &'a mut Vec<Key>,
    /// One that is not there.
    without: Option<Key>,
    required: &'a BTreeSet<Key>,
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.schema = json!({ "type": "boolean" });
        visitor.visit_bool(true)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.schema = json!({ "type": "integer", "minimum": 0 });
        visitor.visit_u64(1)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.schema = json!({ "type": "number" });
        visitor.visit_f64(1.0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.schema = json!({ "type": "string" });
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut items = json!({});
        let one = Tracer { schema: &mut items, keys: self.keys, without: self.without, required: self.required };
        let value = visitor.visit_seq(OneElement(Some(one)))?;
        *self.schema = json!({ "type": "array", "items": items });
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Self { schema, keys, without, required } = self;
        let mut table = Table { name, left: fields.iter(), key: "", properties: Map::new(), keys, without, required };
        let value = visitor.visit_map(&mut table)?;
        let mut properties = table.properties;
        if name.starts_with(SPANNED) {
            *schema = fields.last().and_then(|value| properties.remove(*value)).unwrap_or_default();
            return Ok(value);
        }
        let required: Vec<&str> = fields.iter().copied().filter(|field| required.contains(&(name, *field))).collect();
        *schema =
            json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties });
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(FirstVariant { tracer: self, variants })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct map identifier ignored_any
    }
}

struct OneElement<'a>(Option<Tracer<'a>>);

impl<'de> SeqAccess<'de> for OneElement<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|tracer| seed.deserialize(tracer)).transpose()
    }
}

/// A table with all keys of its type but the one that is left out.
struct Table<'a> {
    name: &'static str,
    left: std::slice::Iter<'static, &'static str>,
    /// Whose value comes next.
    key: &'static str,
    properties: Map<String, Value>,
    keys: &'a mut Vec<Key>,
    without: Option<Key>,
    required: &'a BTreeSet<Key>,
}

impl<'de> MapAccess<'de> for Table<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let (name, without) = (self.name, self.without);
        let Some(&key) = self.left.find(|key| without != Some((name, **key))) else { return Ok(None) };
        self.key = key;
        if !name.starts_with(SPANNED) {
            self.keys.push((name, key));
        }
        let text: BorrowedStrDeserializer<'de, Error> = BorrowedStrDeserializer::new(key);
        seed.deserialize(text).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut schema = json!({});
        let tracer =
            Tracer { schema: &mut schema, keys: &mut *self.keys, without: self.without, required: self.required };
        let value = seed.deserialize(tracer)?;
        self.properties.insert(self.key.to_owned(), schema);
        Ok(value)
    }
}

/// One of several words, or of several tables that a word names.
struct FirstVariant<'a> {
    tracer: Tracer<'a>,
    variants: &'static [&'static str],
}

impl<'de> EnumAccess<'de> for FirstVariant<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let first = self.variants.first().copied().unwrap_or_default();
        let text: BorrowedStrDeserializer<'de, Error> = BorrowedStrDeserializer::new(first);
        Ok((seed.deserialize(text)?, self))
    }
}

impl<'de> VariantAccess<'de> for FirstVariant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        *self.tracer.schema = json!({ "enum": self.variants });
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(Error::custom("no form has such a value"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no form has such a value"))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        let Self { tracer, variants } = self;
        let tables: Map<String, Value> =
            variants.iter().map(|variant| ((*variant).to_owned(), json!({ "type": "object" }))).collect();
        *tracer.schema = json!({ "type": "object", "additionalProperties": false, "properties": tables });
        let mut content = json!({});
        let name = variants.first().copied().unwrap_or_default();
        Tracer { schema: &mut content, ..tracer }.deserialize_struct(name, fields, visitor)
    }
}
