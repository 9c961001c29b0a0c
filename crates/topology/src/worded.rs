//! Enumerations whose variants have a word each.

/// Declares an enumeration of units, each with the word that files, tables and messages have for it. It gets `COUNT`, `ALL` and `WORDS`, and the
/// constant function that is named behind the enumeration says a variant's word. Discriminants follow the order, from 0.
#[macro_export]
macro_rules! worded {
    (
        $(#[$about:meta])*
        $visibility:vis enum $name:ident: $word:ident {
            $($(#[$note:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$about])*
        $visibility enum $name {
            $($(#[$note])* $variant,)*
        }

        impl $name {
            /// Number of variants.
            pub const COUNT: usize = [$($text),*].len();

            /// All variants, in order of their discriminants.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];

            /// Their words, in the same order.
            pub const WORDS: [&'static str; Self::COUNT] = [$($text),*];

            /// Its word in files, tables and messages.
            pub const fn $word(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }
    };
}
