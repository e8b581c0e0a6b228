//! A request as scripts and tests see it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Instant;

use serde_json::Value;

use super::http::Request;

/// A request that reached the judge, or a line of a batch.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Place in the order of arrival, from 0; lines of batches are counted too.
    pub number: usize,
    /// How many requests with the same path and body came before: 0 for the first attempt.
    pub attempt: usize,
    /// When the head of the request was complete.
    pub at: Instant,
    /// `POST`, mostly.
    pub method: String,
    /// Path and query as sent.
    pub path: String,
    /// Headers in the order sent, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
    /// The endpoint's dialect; `None` if the request was not for a model.
    pub dialect: Option<Dialect>,
    /// The system text; empty if there is none.
    pub system: String,
    /// The texts of the user's turns, an empty line between them.
    pub user: String,
    /// All turns but the system's, as (role, text).
    pub turns: Vec<(String, String)>,
    /// The model asked for; empty if there is none.
    pub model: String,
    /// Whether the request asked for a form of reply: a schema, or JSON of any form.
    pub has_response_format: bool,
    /// The JSON schema that the reply should follow.
    pub schema: Option<Value>,
    /// The name of a tool that the model was told to call (Anthropic): the reply goes into its input.
    pub tool: Option<String>,
    /// The id of the line, for lines of a batch.
    pub custom_id: Option<String>,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A JSON document.
    Json(Value),
    /// Anything else, an empty body included.
    Raw(Vec<u8>),
}

/// Whose JSON an endpoint speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `…/chat/completions`
    OpenAi,
    /// `…/messages`
    Anthropic,
    /// `…/models/{model}:generateContent`
    Gemini,
}

impl Asked {
    /// The first header of this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is not.
    pub fn json(&self) -> &Value {
        match &self.body {
            Body::Json(value) => value,
            Body::Raw(_) => &Value::Null,
        }
    }

    /// The path without the query.
    pub fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    pub(super) fn from_request(request: Request) -> Self {
        let body = match serde_json::from_slice(&request.body) {
            Ok(value) => Body::Json(value),
            Err(_) => Body::Raw(request.body),
        };
        let mut asked = Self::new(request.method, request.path, body, request.at);
        asked.headers = request.headers;
        asked
    }

    pub(super) fn from_batch_line(custom_id: &str, method: &str, url: &str, body: Value) -> Self {
        let body = Body::Json(body);
        let mut asked = Self::new(method.to_owned(), url.to_owned(), body, Instant::now());
        asked.custom_id = Some(custom_id.to_owned());
        asked
    }

    fn new(method: String, path: String, body: Body, at: Instant) -> Self {
        let mut asked = Self {
            number: 0,
            attempt: 0,
            at,
            method,
            path,
            headers: Vec::new(),
            body: Body::Raw(Vec::new()),
            dialect: None,
            system: String::new(),
            user: String::new(),
            turns: Vec::new(),
            model: String::new(),
            has_response_format: false,
            schema: None,
            tool: None,
            custom_id: None,
        };
        asked.dialect = match asked.route() {
            _ if asked.method != "POST" => None,
            route if route.ends_with("/chat/completions") => Some(Dialect::OpenAi),
            route if route.ends_with("/messages") => Some(Dialect::Anthropic),
            route if route.ends_with(":generateContent") => Some(Dialect::Gemini),
            _ => None,
        };
        if let Body::Json(value) = &body {
            match asked.dialect {
                Some(Dialect::OpenAi) => asked.read_openai(value),
                Some(Dialect::Anthropic) => asked.read_anthropic(value),
                Some(Dialect::Gemini) => asked.read_gemini(value),
                None => {}
            }
        }
        asked.body = body;
        let users = asked.turns.iter().filter(|(role, _)| role == "user");
        let users: Vec<&str> = users.map(|(_, text)| text.as_str()).collect();
        asked.user = users.join("\n\n");
        asked
    }

    fn read_openai(&mut self, body: &Value) {
        self.model = text(&body["model"]);
        for message in items(&body["messages"]) {
            let content = content(&message["content"]);
            match text(&message["role"]).as_str() {
                "system" | "developer" => self.system.push_str(&content),
                role => self.turns.push((role.to_owned(), content)),
            }
        }
        let format = &body["response_format"];
        self.has_response_format = !matches!(format["type"].as_str(), None | Some("text"));
        self.schema = present(&format["json_schema"]["schema"]);
    }

    fn read_anthropic(&mut self, body: &Value) {
        self.model = text(&body["model"]);
        self.system = content(&body["system"]);
        for message in items(&body["messages"]) {
            let turn = (text(&message["role"]), content(&message["content"]));
            self.turns.push(turn);
        }
        let called = &body["tool_choice"]["name"];
        let tool = items(&body["tools"]).find(|tool| called.is_string() && tool["name"] == *called);
        self.tool = tool.map(|tool| text(&tool["name"]));
        self.schema = present(&body["output_config"]["format"]["schema"])
            .or_else(|| present(&body["output_format"]["schema"]))
            .or_else(|| tool.and_then(|tool| present(&tool["input_schema"])));
        self.has_response_format = self.schema.is_some();
    }

    fn read_gemini(&mut self, body: &Value) {
        let model = self.route().rsplit('/').next().unwrap_or_default();
        self.model = model.trim_end_matches(":generateContent").to_owned();
        self.system = either(body, "systemInstruction", "system_instruction")
            .map(|system| content(&system["parts"]))
            .unwrap_or_default();
        for message in items(&body["contents"]) {
            let role = message["role"].as_str().unwrap_or("user");
            let turn = (role.to_owned(), content(&message["parts"]));
            self.turns.push(turn);
        }
        let config = either(body, "generationConfig", "generation_config").unwrap_or(&Value::Null);
        self.schema = either(config, "responseJsonSchema", "response_json_schema")
            .or_else(|| either(config, "responseSchema", "response_schema"))
            .cloned();
        let mime = either(config, "responseMimeType", "response_mime_type");
        self.has_response_format =
            self.schema.is_some() || mime.is_some_and(|mime| mime == "application/json");
    }

    /// A number that equal requests share.
    pub(super) fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.method, &self.path).hash(&mut hasher);
        match &self.body {
            Body::Json(value) => value.hash(&mut hasher),
            Body::Raw(bytes) => bytes.hash(&mut hasher),
        }
        hasher.finish()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn present(value: &Value) -> Option<Value> {
    (!value.is_null()).then(|| value.clone())
}

fn either<'a>(value: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
    value.get(camel).or_else(|| value.get(snake))
}

/// A message's content: a string, or the texts of its parts.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}
