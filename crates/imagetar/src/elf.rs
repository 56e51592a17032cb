//! Just enough of ELF to tell a program that starts without other files from one that does not.

/// How a program finds what it needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// It carries all of it.
    Static,
    /// The kernel must first start the loader that it names.
    Dynamic,
}

/// Reads the program headers of a 64-bit little-endian ELF file; `None` when the bytes are not one.
pub(crate) fn linkage(file: &[u8]) -> Option<Linkage> {
    const MAGIC_64_LITTLE: &[u8] = b"\x7fELF\x02\x01";
    const PROGRAM_INTERPRETER: u32 = 3;
    if !file.starts_with(MAGIC_64_LITTLE) {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(bytes(file, 32)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(bytes(file, 54)?));
    let count = usize::from(u16::from_le_bytes(bytes(file, 56)?));
    for index in 0..count {
        let start = table.checked_add(index.checked_mul(size)?)?;
        if u32::from_le_bytes(bytes(file, start)?) == PROGRAM_INTERPRETER {
            return Some(Linkage::Dynamic);
        }
    }
    Some(Linkage::Static)
}

fn bytes<const N: usize>(file: &[u8], start: usize) -> Option<[u8; N]> {
    file.get(start..start.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{Linkage, linkage};

    /// A header with `types.len()` program headers right behind it.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&u16::try_from(types.len()).unwrap().to_le_bytes());
        for kind in types {
            file.extend(kind.to_le_bytes());
            file.resize(file.len() + 52, 0);
        }
        file
    }

    #[test]
    fn tells_static_from_dynamic() {
        let table: [(&str, Vec<u8>, Option<Linkage>); 7] = [
            ("load only", elf(&[1, 1]), Some(Linkage::Static)),
            ("static and position independent", elf(&[1, 2]), Some(Linkage::Static)),
            ("names a loader", elf(&[6, 3, 1]), Some(Linkage::Dynamic)),
            ("a script", b"#!/bin/sh\n".to_vec(), None),
            ("empty", Vec::new(), None),
            (
                "32 bits",
                {
                    let mut file = elf(&[1]);
                    file[4] = 1;
                    file
                },
                None,
            ),
            ("cut inside the table", elf(&[1, 1])[..100].to_vec(), None),
        ];
        for (name, file, want) in table {
            assert_eq!(linkage(&file), want, "{name}");
        }
    }

    #[test]
    fn a_table_at_the_end_of_the_address_space_is_no_program() {
        let mut file = elf(&[1, 1]);
        file[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(linkage(&file), None);
    }
}
