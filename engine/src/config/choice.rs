//! Settings that are one of a few words.

/// A setting with a fixed set of words.
pub trait Choice: Copy + 'static {
    fn from_word(word: &str) -> Option<Self>;
    /// As the configuration writes it.
    fn word(self) -> &'static str;
}

/// Declares an enum together with the words that the configuration uses for it.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Every word, in the order of the reference page.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
        }

        impl $crate::config::choice::Choice for $name {
            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }

            fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }
    };
}

pub(super) use choice;
