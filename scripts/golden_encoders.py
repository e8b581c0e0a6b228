"""Writes tiny models with random weights, and what PyTorch computes with them: `tests/golden/encoders`, for families that
transformers has classes of (nomic_bert, gte), each in both dialects of its folders, and for Jina's BERT, which is computed
here by its formulas.

    pip install torch transformers safetensors
    python3 scripts/golden_encoders.py tests/golden/encoders
"""

import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

VOCABULARY, HIDDEN, HEADS, LAYERS, WIDE, POSITIONS = 211, 64, 4, 2, 96, 160
LENGTHS = [1, 2, 3, 7, 16, 33, 64, 150]


def texts():
    draw = torch.Generator().manual_seed(7)
    return [torch.randint(1, VOCABULARY, (n,), generator=draw).tolist() for n in LENGTHS]


def write(folder, config, tensors, forward):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    rounded = lambda row: [round(x, 6) for x in row.tolist()]
    with open(folder / "expected.jsonl", "w") as out:
        for ids in texts():
            with torch.no_grad():
                rows = forward(torch.tensor([ids]))[0]
            record = {"ids": ids, "mean": rounded(rows.mean(0)), "cls": rounded(rows[0]), "last": rounded(rows[-1])}
            out.write(json.dumps(record) + "\n")


def randomised(model):
    draw = torch.Generator().manual_seed(11)
    for name, parameter in model.named_parameters():
        about = 1.0 if "orm.weight" in name or "norm1.weight" in name else 0.0
        parameter.data = about + 0.15 * torch.randn(parameter.shape, generator=draw)
    return model.eval()


def of_transformers(out):
    from transformers import GteConfig, GteModel, NomicBertConfig, NomicBertModel

    sizes = dict(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        intermediate_size=WIDE, max_position_embeddings=POSITIONS, attn_implementation="eager",
    )
    rope = lambda base: {"rope_type": "default", "rope_theta": base}
    nomic = randomised(NomicBertModel(NomicBertConfig(**sizes, rope_parameters=rope(1000.0))))
    gte = randomised(GteModel(GteConfig(**sizes, rope_parameters=rope(160000.0))))
    for name, model in [("nomic_bert", nomic), ("gte", gte)]:
        config = json.loads(model.config.to_json_string(use_diff=False))
        write(out / name, config, dict(model.state_dict()), lambda ids, m=model: m(ids).last_hidden_state)

    def fused(tensors, number, parts, kind):
        return torch.cat([tensors[f"layers.{number}.{part}.{kind}"] for part in parts])

    qkv = [f"self_attn.{part}_proj" for part in "qkv"]
    state = nomic.state_dict()
    own = {"embeddings.word_embeddings.weight": state["embeddings.word_embeddings.weight"],
           "embeddings.token_type_embeddings.weight": state["embeddings.token_type_embeddings.weight"]}
    for kind in ["weight", "bias"]:
        own[f"emb_ln.{kind}"] = state[f"embeddings.LayerNorm.{kind}"]
    for n in range(LAYERS):
        at = f"encoder.layers.{n}."
        own[at + "attn.Wqkv.weight"] = fused(state, n, qkv, "weight")
        for mine, theirs in [("attn.out_proj", "self_attn.o_proj"), ("mlp.fc11", "mlp.up_proj"),
                             ("mlp.fc12", "mlp.gate_proj"), ("mlp.fc2", "mlp.down_proj"),
                             ("norm1", "post_attention_layernorm"), ("norm2", "post_mlp_layernorm")]:
            for kind in ["weight", "bias"]:
                name = f"layers.{n}.{theirs}.{kind}"
                if name in state:
                    own[at + f"{mine}.{kind}"] = state[name]
    config = {
        "model_type": "nomic_bert", "n_embd": HIDDEN, "n_head": HEADS, "n_layer": LAYERS, "n_inner": WIDE,
        "n_positions": POSITIONS, "vocab_size": VOCABULARY, "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_scaling_factor": None, "prenorm": False,
        "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "activation_function": "swiglu",
        "use_rms_norm": False, "causal": False, "parallel_block": False,
    }
    write(out / "nomic_bert_own", config, own, lambda ids: nomic(ids).last_hidden_state)

    # The family's own code scales turns: base * factor, and all speeds by factor^(-2 / head).
    factor, base, head = 2.0, 500000.0, HIDDEN // HEADS
    speeds = (base * factor) ** (-torch.arange(0, head, 2).float() / head) / factor ** (2 / head)
    gte.rotary_emb.inv_freq.copy_(speeds)
    state = gte.state_dict()
    own = {"new." + name: t for name, t in state.items() if name.startswith("embeddings.")}
    for n in range(LAYERS):
        at = f"new.encoder.layer.{n}."
        for kind in ["weight", "bias"]:
            own[at + f"attention.qkv_proj.{kind}"] = fused(state, n, qkv, kind)
            for mine, theirs in [("attention.o_proj", "self_attn.o_proj"), ("mlp.down_proj", "mlp.down_proj"),
                                 ("attn_ln", "post_attention_layernorm"), ("mlp_ln", "post_mlp_layernorm")]:
                own[at + f"{mine}.{kind}"] = state[f"layers.{n}.{theirs}.{kind}"]
        own[at + "mlp.up_gate_proj.weight"] = fused(state, n, ["mlp.up_proj", "mlp.gate_proj"], "weight")
    config = {
        "model_type": "new", "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "intermediate_size": WIDE, "max_position_embeddings": POSITIONS, "vocab_size": VOCABULARY, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm", "position_embedding_type": "rope", "pack_qkv": True,
        "rope_theta": base, "rope_scaling": {"type": "ntk", "factor": factor}, "type_vocab_size": 1,
        "logn_attention_scale": False,
    }
    write(out / "gte_own", config, own, lambda ids: gte(ids).last_hidden_state)


def jina(out):
    draw = torch.Generator().manual_seed(13)
    tensors = {}

    def tensor(name, *shape, about=0.0):
        tensors[name] = about + 0.15 * torch.randn(shape, generator=draw)

    tensor("embeddings.word_embeddings.weight", VOCABULARY, HIDDEN)
    tensor("embeddings.token_type_embeddings.weight", 2, HIDDEN)
    norms = ["embeddings.LayerNorm"]
    for n in range(LAYERS):
        at = f"encoder.layer.{n}."
        for name in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]:
            tensor(f"{at}{name}.weight", HIDDEN, HIDDEN)
            tensor(f"{at}{name}.bias", HIDDEN)
        tensor(at + "mlp.gated_layers.weight", 2 * WIDE, HIDDEN)
        tensor(at + "mlp.wo.weight", HIDDEN, WIDE)
        tensor(at + "mlp.wo.bias", HIDDEN)
        norms += [at + "attention.output.LayerNorm", at + "mlp.layernorm"]
    for name in norms:
        tensor(name + ".weight", HIDDEN, about=1.0)
        tensor(name + ".bias", HIDDEN)
    # Six heads would not divide 64: slopes of four are powers of 1/4.
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / HEADS) for h in range(HEADS)])

    def forward(ids):
        linear = lambda x, name: torch.nn.functional.linear(x, tensors[name + ".weight"], tensors.get(name + ".bias"))
        norm = lambda x, name: torch.nn.functional.layer_norm(
            x, (HIDDEN,), tensors[name + ".weight"], tensors[name + ".bias"], 1e-12)
        heads = lambda x: x.view(len(x), HEADS, -1).transpose(0, 1)
        x = tensors["embeddings.word_embeddings.weight"][ids[0]] + tensors["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm")
        places = torch.arange(len(x))
        away = (places[:, None] - places[None, :]).abs()
        for n in range(LAYERS):
            at = f"encoder.layer.{n}."
            q, k, v = (heads(linear(x, f"{at}attention.self.{part}")) for part in ["query", "key", "value"])
            scores = q @ k.transpose(1, 2) / math.sqrt(HIDDEN // HEADS) - slopes[:, None, None] * away
            context = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), HIDDEN)
            x = norm(linear(context, at + "attention.output.dense") + x, at + "attention.output.LayerNorm")
            gated, other = linear(x, at + "mlp.gated_layers").split(WIDE, dim=1)
            x = norm(linear(torch.nn.functional.gelu(gated) * other, at + "mlp.wo") + x, at + "mlp.layernorm")
        return x[None]

    config = {
        "model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu", "hidden_size": HIDDEN,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "intermediate_size": WIDE,
        "max_position_embeddings": POSITIONS, "vocab_size": VOCABULARY, "layer_norm_eps": 1e-12, "type_vocab_size": 2,
    }
    write(out / "jina_bert", config, tensors, forward)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    of_transformers(folder)
    jina(folder)
