//! The byte alphabet of GPT-2: every byte has a printable character that stands for it in the
//! vocabulary (`bytes_to_unicode` in openai/gpt-2, `src/encoder.py`).

/// The character that stands for `byte` in a byte-level vocabulary.
pub(super) fn byte_to_char(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => u32::from(byte),
        // The remaining 68 bytes take the characters from U+0100 on, in order of the byte.
        0..=0x20 => 0x100 + u32::from(byte),
        0x7f..=0xa0 => 0x121 + u32::from(byte) - 0x7f,
        0xad => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that `character` stands for, if it belongs to the alphabet.
fn char_to_byte(character: char) -> Option<u8> {
    let byte = match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => code,
        code @ 0x100..=0x120 => code - 0x100,
        code @ 0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The bytes of text that a vocabulary entry stands for. An entry with a character outside the
/// alphabet stands for its own UTF-8 bytes, as in the `tokenizers` decoder.
pub(super) fn token_bytes(token: &str) -> Vec<u8> {
    token
        .chars()
        .map(char_to_byte)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection_on_bytes() {
        let mut seen = std::collections::BTreeSet::new();
        for byte in 0..=255u8 {
            let character = byte_to_char(byte);
            assert!(seen.insert(character));
            assert!(!character.is_whitespace() && !character.is_control());
            assert_eq!(char_to_byte(character), Some(byte));
        }
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(byte_to_char(0xad), 'Ń');
    }

    #[test]
    fn tokens_outside_the_alphabet_keep_their_own_bytes() {
        assert_eq!(token_bytes("Ġthe"), b" the");
        assert_eq!(token_bytes("<｜end｜>"), "<｜end｜>".as_bytes());
    }
}
