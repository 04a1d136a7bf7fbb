//! Safetensors files, read tensor by tensor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::safetensors::Load;
use candle_core::{Device, Tensor};
use safetensors::SafeTensorError;
use safetensors::tensor::{Metadata, TensorInfo, TensorView};

use super::{TensorMap, WeightsError, corrupt, unreadable};

const FORMAT: &str = "safetensors";

/// Bytes of the header's length, which the file begins with.
const LENGTH_BYTES: u64 = 8;

/// No larger header is read, as by the library.
const LARGEST_HEADER: u64 = 100_000_000;

/// An open file.
#[derive(Debug)]
pub(super) struct SafetensorsFile {
    path: PathBuf,
    file: File,
    /// Where the tensors' bytes begin.
    start: u64,
    tensors: BTreeMap<String, TensorInfo>,
}

impl SafetensorsFile {
    /// Read the header.
    ///
    /// # Errors
    /// When the file can't be read or is damaged.
    pub(super) fn open(path: &Path) -> Result<Self, WeightsError> {
        let broken = |error: SafeTensorError| corrupt(path, FORMAT, &error);
        let mut file = File::open(path).map_err(unreadable(path))?;
        let size = file.metadata().map_err(unreadable(path))?.len();
        if size < LENGTH_BYTES {
            return Err(broken(SafeTensorError::HeaderTooSmall));
        }
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length).map_err(unreadable(path))?;
        let length = u64::from_le_bytes(length);
        if length > LARGEST_HEADER {
            return Err(broken(SafeTensorError::HeaderTooLarge));
        }
        let start = LENGTH_BYTES + length;
        if start > size {
            return Err(broken(SafeTensorError::InvalidHeaderLength));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(unreadable(path))?;
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| broken(SafeTensorError::InvalidHeaderDeserialization(error)))?;
        if start.checked_add(header.data_len() as u64) != Some(size) {
            return Err(broken(SafeTensorError::MetadataIncompleteBuffer));
        }
        let tensors = header.tensors().into_iter();
        Ok(Self {
            path: path.to_owned(),
            file,
            start,
            tensors: tensors.map(|(name, info)| (name, info.clone())).collect(),
        })
    }

    /// Forget a tensor.
    pub(super) fn leave_out(&mut self, name: &str) {
        self.tensors.remove(name);
    }

    /// Shapes of the tensors.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let tensors = self.tensors.iter();
        tensors.map(|(name, info)| (name.as_str(), info.shape.as_slice()))
    }

    /// One tensor, in the file's type.
    ///
    /// # Errors
    /// When the file can't be read, or the type is unknown.
    pub(super) fn read(
        &mut self,
        name: &str,
        device: &Device,
    ) -> Result<Option<Tensor>, WeightsError> {
        let Some(info) = self.tensors.get(name) else {
            return Ok(None);
        };
        let (from, to) = info.data_offsets;
        let mut bytes = vec![0; to - from];
        let start = SeekFrom::Start(self.start + from as u64);
        self.file.seek(start).map_err(unreadable(&self.path))?;
        self.file
            .read_exact(&mut bytes)
            .map_err(unreadable(&self.path))?;
        let view = TensorView::new(info.dtype, info.shape.clone(), &bytes)
            .map_err(|error| corrupt(&self.path, FORMAT, &error))?;
        let tensor = view.load(device);
        tensor
            .map(Some)
            .map_err(|error| corrupt(&self.path, FORMAT, &error))
    }

    /// Every tensor, in the file's types.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn read_all(&mut self, device: &Device) -> Result<TensorMap, WeightsError> {
        let names: Vec<String> = self.tensors.keys().cloned().collect();
        let mut tensors = TensorMap::new();
        for name in names {
            if let Some(tensor) = self.read(&name, device)? {
                tensors.insert(name, tensor);
            }
        }
        Ok(tensors)
    }
}
