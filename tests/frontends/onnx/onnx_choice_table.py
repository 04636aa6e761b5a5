"""The cases of all ops with attributes that have closed sets, and attributes that have none."""

from __future__ import annotations

import onnx_cases_of_arrays as arrays
import onnx_cases_of_images as images
import onnx_cases_of_types as types
import onnx_cases_of_versions as later
from onnx_cases import Case

ML = "ai.onnx.ml"

CASES: dict[tuple[str, str], list[Case]] = {
    **{("", op): cases for table in (arrays, images, types) for op, cases in table.CASES.items()},
    **{(ML, op): cases for op, cases in types.ML_DOMAIN.items()},
}
"""By domain and op, those with closed sets."""

BY_VERSION: dict[tuple[str, str], list[Case]] = {
    ("", op): cases for op, cases in later.CASES.items()
}
"""Further cases, also of ops whose attributes have no closed sets."""

RANDOM = [
    ("", op) for op in (
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    )
]  # fmt: skip
"""Ops whose numbers are random, of which the dtype is tested."""

LEARNT = (
    "OneHotEncoder", "SVMClassifier", "SVMRegressor", "TreeEnsemble", "TreeEnsembleClassifier",
    "TreeEnsembleRegressor",
)  # fmt: skip
WITHOUT_CASES = {
    *RANDOM, ("", "Scan"), ("", "ConcatFromSequence"), *(("ai.onnx.ml", op) for op in LEARNT),
}  # fmt: skip
"""Ops that have tests of their own."""

NAMES = """
activation_alpha activation_beta alpha axes axis base_values base_values_as_tensor batch_dims beta
bias block_size blocksize body cats_int64s cats_strings chunk_size class_ids class_nodeids
class_treeids class_weights class_weights_as_tensor classes_strings classlabels_int64s
classlabels_ints classlabels_strings clip coefficients consumed_inputs cubic_coeff_a decay_factor
default_float default_int64 default_string default_tensor delimiter dilations else_branch end ends
epsilon equation extrapolation_value gamma group height_scale hidden_size high ignore_index
imputed_value_floats imputed_value_int64s inputdimensions int64_vocabulary intercepts is_test k
kernel_params kernel_shape keys_floats keys_int64s keys_strings keys_tensor kv_num_heads lambd
leaf_targetids leaf_weights left_window_size locale low max max_gram_length max_map max_skip_count
maxsplit mean membership_values min min_gram_length momentum n_supports n_targets ngram_counts
ngram_indexes nodes_falseleafs nodes_falsenodeids nodes_featureids nodes_hitrates
nodes_hitrates_as_tensor nodes_nodeids nodes_splits nodes_treeids nodes_trueleafs
nodes_truenodeids nodes_values nodes_values_as_tensor norm_coefficient norm_coefficient_post
num_groups num_heads num_outputs num_scan_inputs offset offset_group output_height output_padding
output_shape output_width paddings pads pattern perm pool_int64s pool_strings pooled_shape prob_a
prob_b prob_mod q_num_heads ratio replaced_value_float replaced_value_int64 rho right_window_size
rotary_embedding_dim sample_size sampling_ratio scale scales scan_input_axes scan_output_axes
score_mod seed shape size softcap sparse_value spatial_scale split start starts stopwords strides
string_vocabulary support_vectors target_ids target_nodeids target_treeids target_weights
target_weights_as_tensor targets then_branch threshold tree_roots type value value_float
value_floats value_int value_ints value_string value_strings values_floats values_int64s
values_strings values_tensor vectors_per_class weights width_scale xs y zs
"""
OPEN = frozenset(NAMES.split()) | {("", "GlobalLpPool", "p"), ("", "LpPool", "p")}
"""Attributes without a closed set: numbers, names, lists, tensors and graphs of any kind."""
