//! Outputs of a request by name.
use std::slice::Iter;
use std::sync::Arc;
use tensor::Tensor;

/// Outputs of a request, in the model's order; indexed by name or position.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    pub(crate) names: Arc<[String]>,
    pub(crate) tensors: Vec<Tensor>,
}

impl Outputs {
    /// The output `name`, if the model has it.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.iter().find(|(n, _)| *n == name).map(|(_, t)| t)
    }

    /// Names and tensors, in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.names.iter().map(String::as_str).zip(&self.tensors)
    }

    /// Takes the output `name` out, if the model has it and it was not taken out before.
    pub fn remove(&mut self, name: &str) -> Option<Tensor> {
        let at = self.names.iter().position(|n| n == name)?;
        self.names = (self.names.iter().enumerate())
            .filter(|(i, _)| *i != at)
            .map(|(_, n)| n.clone())
            .collect();
        Some(self.tensors.remove(at))
    }

    /// Names, in the model's order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Whether there is an output `name`.
    pub fn contains_key(&self, name: &str) -> bool {
        self.keys().any(|n| n == name)
    }

    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Tensors in the model's order, taken out.
    pub fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }

    /// Names and tensors, taken out.
    pub fn into_vec(self) -> Vec<(String, Tensor)> {
        self.names.iter().cloned().zip(self.tensors).collect()
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

impl<'a> IntoIterator for &'a Outputs {
    type Item = (&'a str, &'a Tensor);
    type IntoIter =
        std::iter::Zip<std::iter::Map<Iter<'a, String>, fn(&String) -> &str>, Iter<'a, Tensor>>;

    fn into_iter(self) -> Self::IntoIter {
        let name: fn(&String) -> &str = String::as_str;
        self.names.iter().map(name).zip(&self.tensors)
    }
}

impl std::ops::Index<&str> for Outputs {
    type Output = Tensor;

    /// # Panics
    /// When the model has no output of that name; [`Outputs::get`] does not panic.
    fn index(&self, name: &str) -> &Tensor {
        match self.get(name) {
            Some(t) => t,
            None => panic!("the model has no output '{name}'"),
        }
    }
}

impl std::ops::Index<usize> for Outputs {
    type Output = Tensor;

    /// # Panics
    /// When there are not as many outputs.
    fn index(&self, i: usize) -> &Tensor {
        &self.tensors[i]
    }
}
