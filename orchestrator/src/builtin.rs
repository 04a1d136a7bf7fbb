//! What the binary carries, so that an installed `coharness` needs no checkout.

/// Configurations by name.
pub const CONFIGS: [(&str, &str); 2] = [
    (
        "quickstart.yaml",
        include_str!("../../configs/quickstart.yaml"),
    ),
    ("aime.yaml", include_str!("../../configs/aime.yaml")),
];

/// Problem sets by name.
pub const TASKS: [(&str, &str); 1] = [(
    "arithmetic",
    include_str!("../../configs/tasks/arithmetic.jsonl"),
)];

/// A model that has a name: its file in the cache folder, and the hash of that file.
#[derive(Clone, Copy, Debug)]
pub struct KnownModel {
    /// The name in configurations.
    pub name: &'static str,
    /// File name in the cache folder.
    pub file: &'static str,
    /// blake3 of the file.
    pub hash: &'static str,
}

/// Models by name; `scripts/fetch-model` puts them into the cache folder.
pub const MODELS: [KnownModel; 1] = [KnownModel {
    name: "SmolLM2-135M-Instruct",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    hash: "5f4fa13bfc6dd4a91fd00e22974a9c4e9ed628fd7d7f307398ddf30260d6b2c3",
}];
