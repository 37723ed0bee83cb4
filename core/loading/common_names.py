"""Names that most models share: keys of config.json and of GGUF metadata, tensors of GGUF files, and the keys that
are known not to change what a model computes."""

from __future__ import annotations

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}

HF_KEYS = {
    "d_model": "hidden_size",
    "d_k": "head_dim",
    "d_ff": "intermediate_size",
    "d_vocab": "vocab_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "context_length": "max_position_embeddings",
    "norm_epsilon": "rms_norm_eps",
    "activation": "hidden_act",
    "tied": "tie_word_embeddings",
}

GGUF_KEYS = {
    "d_model": "embedding_length",
    "d_k": "attention.key_length",
    "d_v": "attention.value_length",
    "d_ff": "feed_forward_length",
    "d_vocab": "vocab_size",
    "n_layers": "block_count",
    "n_heads": "attention.head_count",
    "n_kv_heads": "attention.head_count_kv",
    "context_length": "context_length",
    "norm_epsilon": "attention.layer_norm_rms_epsilon",
}

GGUF_WEIGHTS = {
    "embedding": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "W_t": "output.weight",
    "rope_factors": "rope_freqs.weight",
    "attention_norm": "blk.{layer}.attn_norm.weight",
    "W_q": "blk.{layer}.attn_q.weight",
    "W_k": "blk.{layer}.attn_k.weight",
    "W_v": "blk.{layer}.attn_v.weight",
    "W_o": "blk.{layer}.attn_output.weight",
    "b_q": "blk.{layer}.attn_q.bias",
    "b_k": "blk.{layer}.attn_k.bias",
    "b_v": "blk.{layer}.attn_v.bias",
    "b_o": "blk.{layer}.attn_output.bias",
    "q_norm": "blk.{layer}.attn_q_norm.weight",
    "k_norm": "blk.{layer}.attn_k_norm.weight",
    "feed_forward_norm": "blk.{layer}.ffn_norm.weight",
    "W_gate": "blk.{layer}.ffn_gate.weight",
    "W_up": "blk.{layer}.ffn_up.weight",
    "W_down": "blk.{layer}.ffn_down.weight",
    "b_gate": "blk.{layer}.ffn_gate.bias",
    "b_up": "blk.{layer}.ffn_up.bias",
    "b_down": "blk.{layer}.ffn_down.bias",
}

# Patterns. What a training run, a task head, a sampler's default or a cache setting says, and what the tensors prove.
HARMLESS_HF_KEYS = (
    "architectures", "model_type", "auto_map", "_name_or_path", "name_or_path", "_commit_hash", "_num_labels",
    "output_past", "max_sequence_length", "*model_max_length", "tokenizer_class", "transformers_version",
    "transformers.js_config", "unsloth_*", "is_llama_config", "dtype", "torch_dtype", "torchscript",
    "*attn_implementation*", "*experts_implementation*", "use_bfloat16", "use_flash_attn", "pretraining_tp",
    "use_cache", "cache_implementation", "gradient_checkpointing", "chunk_size_feed_forward", "initializer_*",
    "*dropout*", "*_pdrop", "*_token_id", "is_decoder", "output_attentions", "output_hidden_states",
    "output_scores", "return_dict", "return_dict_in_generate", "use_return_dict", "problem_type", "finetuning_task",
    "task_specific_params", "id2label", "label2id", "num_labels", "prefix", "summary_*", "max_length", "min_length",
    "max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "diversity_penalty", "num_beams", "num_beam_groups", "num_return_sequences",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "early_stopping", "bad_words_ids",
    "begin_suppress_tokens", "suppress_tokens", "remove_invalid_values", "exponential_decay_length_penalty",
)  # fmt: skip

# Patterns of keys under the architecture's own prefix.
HARMLESS_GGUF_KEYS = ("rope.scaling.finetuned", "tensor_data_layout")

# Buffers that old checkpoints carry beside their weights.
HARMLESS_TENSORS = ("*.rotary_emb.inv_freq", "*.attn_rot_embd.weight")
