//! What a quick model decided for the model of a run.

use serde::Serialize;

/// Pairs, texts and time of a run with a quick model, and how well that one agrees with the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TriageSummary {
    /// The quick model.
    pub model: String,
    /// SHA-256 over all that decides its vectors.
    pub sha256: String,
    /// Pairs of texts that were compared.
    pub pairs_compared: u64,
    /// Of these, pairs that the model was not asked about: their cosines are estimates.
    pub pairs_decided: u64,
    /// Distinct texts.
    pub texts: u64,
    /// Of these, texts that the model embedded, those of the sample among them.
    pub texts_of_the_model: u64,
    /// The share of the encoder's time that was saved, about; none where the model's vectors were kept from earlier.
    pub time_saved: Option<f64>,
    /// Pairs of input and output that both models saw.
    pub sample_pairs: u64,
    /// A third of them, which the decisions were tried on; 0 where coherence is not computed.
    pub held_out_pairs: u64,
    /// Of these, pairs that the quick model decides.
    pub held_out_decided: u64,
    /// Of these, pairs of which it is decided as the model decides: whether coherence reaches its threshold.
    pub held_out_agreeing: u64,
}

impl TriageSummary {
    /// One line for a reader.
    pub fn line(&self) -> String {
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        if self.pairs_decided == 0 {
            return format!(
                "--triage: {} decided no pair of texts: the {} pairs of the sample don't allow it; all scores are the model's",
                self.model, self.sample_pairs
            );
        }
        let saved = self.time_saved.map_or_else(String::new, |saved| {
            format!(", about {:.0} % of the encoder's time saved", 100.0 * saved)
        });
        let agreement = match self.held_out_pairs {
            0 => String::new(),
            pairs => format!(
                "; of {pairs} pairs of input and output that were not learnt from, coherence of {:.1} % passes or fails as with \
                 the model alone",
                percent(self.held_out_agreeing, pairs)
            ),
        };
        format!(
            "--triage: scores are estimates of {} where it decides ({:.0} % of {} pairs of texts; the model embedded {} of {} \
             texts{saved}), and so are scores and signals of sessions, and means{agreement}",
            self.model,
            percent(self.pairs_decided, self.pairs_compared),
            self.pairs_compared,
            self.texts_of_the_model,
            self.texts,
        )
    }
}
