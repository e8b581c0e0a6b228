//! What a run says of judging conversations, and the call that comes of it.

use std::sync::Arc;

use crate::conversation::{
    ConversationJudge, Request, RunBars, SCHEMA_NAME, SchemaPlace, prompt_versions,
};
use crate::judge::{Call, PromptLabel, ReplyFormat, Temperature};
use crate::metric::CONVERSATION;

/// How conversations are judged.
#[derive(Clone, Debug)]
pub struct ConversationRequest {
    /// Metrics with their weights, and the prompts.
    pub judge: ConversationJudge,
    /// The bars of the run.
    pub bars: RunBars,
    /// The model, as in `openai/gpt-4o`.
    pub model: String,
    /// Randomness.
    pub temperature: Temperature,
    /// Most tokens of a reply.
    pub max_output_tokens: u32,
    /// How often a judge whose reply can't be used is asked, at least 1; see [`crate::judge::AskingRules::rounds`].
    pub rounds: u32,
    /// Whether one more round is put where all replies are the ledger's; see [`crate::judge::AskingRules::anew`].
    pub anew: bool,
}

impl ConversationRequest {
    /// The call that asks for a verdict.
    pub(crate) fn call(&self, request: Request, place: SchemaPlace, round: u32) -> Call {
        let Request {
            system,
            user,
            schema,
            ..
        } = request;
        Call {
            model: self.model.clone(),
            system: system.into(),
            user,
            format: match place {
                SchemaPlace::ResponseFormat => Some(ReplyFormat {
                    name: SCHEMA_NAME,
                    schema: Arc::new(schema),
                }),
                SchemaPlace::Prompt => None,
            },
            temperature: self.temperature.of(&self.model),
            max_output_tokens: self.max_output_tokens,
            prompt: PromptLabel {
                name: CONVERSATION,
                // Counts up when either of the two texts changes.
                version: prompt_versions().iter().sum(),
            },
            apart: match round {
                0 => String::new(),
                round => format!("round {round}"),
            },
            body: None,
        }
    }
}
