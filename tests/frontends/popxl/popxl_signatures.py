"""PopXL's public names and signatures (Poplar SDK 3), as its documents and source have them."""

from __future__ import annotations

POPXL = """
variable(data, dtype=None, name=None, downcast=True, replica_grouping=None, retrieval_mode=None, \
log2_scale=None, nan_on_overflow=None)
constant(data, dtype=None, name=None, downcast=True, log2_scale=None, nan_on_overflow=None)
graph_input(shape, dtype, name=None, by_ref=False, meta_shape=None)
graph_output(t)
h2d_stream(shape, dtype, name=None)
d2h_stream(shape, dtype, name=None)
create_seeds(seed, offset=0, batches_per_step=1, gradient_accumulation_factor=1, replicas=1)
in_sequence(mode=True)
name_scope(name)
ipu(ipu)
io_tiles()
get_current_graph()
get_main_graph()
gcg()
gmg()
context.get_current_context()
random_seed.create_seeds(seed, offset=0, batches_per_step=1, gradient_accumulation_factor=1, \
replicas=1)
random_seed.uint64_to_two_uint32(num)
random_seed.two_uint32_to_uint64(a, b)
TensorSpec(shape, dtype, meta_shape=())
Ir(replication=1)
Ir.create_graph(self, fn, *args, **kwargs)
Ir.create_empty_graph(self, name=None)
Ir.dot_checkpoint(self, check, save_dir=None)
Ir.get_all_d2h_streams(self)
Ir.get_all_h2d_streams(self)
Ir.replica_grouping(self, stride=1, group_size=None)
Ir.replica_grouping_from_assignments(self, assignment)
Graph.get_tensor(self, tensor_id)
Graph.register_op_created_hook(self, fn)
Graph.remove_op_created_hook(self, handle)
Session(ir, device_desc='cpu')
Session.run(self, inputs=None, downcast_inputs=True)
Session.run_with_outputs(self, inputs=None, outputs=None, downcast_inputs=True)
Session.create_host_outputs(self)
Session.expected_inputs(self)
Session.weights_to_host(self)
Session.weights_from_host(self)
Session.get_tensor_data(self, tensor)
Session.get_tensors_data(self, tensors)
Session.write_variable_data(self, tensor, data)
Session.write_variables_data(self, tensors)
Tensor.strides(self, shape=None)
Tensor.transpose(self, permutation=None)
Tensor.transpose_(self, permutation=None)
Tensor.reshape(self, shape)
Tensor.reshape_(self, shape)
Tensor.flatten(self)
Tensor.flatten_(self)
Tensor.detach(self)
Tensor.detach_(self)
ReplicaGrouping.transpose(self)
Module.build(self, *args, **kwargs)
dtype.as_dtype(type_value)
dtype.from_name(name)
dtype.as_numpy(self)
dtype.as_torch(self)
transforms.autodiff(graph, grads_provided=None, grads_required=None, \
called_graphs_grad_info=None, return_all_grad_graphs=False)
transforms.decompose_sum(graph)
transforms.GradGraphInfo.inputs_dict(self, fwd_call_info)
transforms.GradGraphInfo.fwd_graph_ins_to_grad_parent_outs(self, grad_call_info)
transforms.GradGraphInfo.fwd_parent_ins_to_grad_parent_outs(self, fwd_call_info, grad_call_info)
ops.CallSiteInfo.graph_to_parent(self, graph_tensor)
ops.CallSiteInfo.parent_to_graph(self, parent_tensor)
ops.CallSiteInfo.graph_to_parent_input_index(self, idx)
ops.CallSiteInfo.graph_to_parent_output_index(self, idx)
ops.CallSiteInfo.parent_to_graph_input_index(self, idx)
ops.CallSiteInfo.parent_to_graph_output_index(self, idx)
ops.CallSiteInfo.parent_input(self, idx)
ops.CallSiteInfo.parent_output(self, idx)
ops.CallSiteInfo.set_parent_input_modified(self, parent_tensor, infer_modified_regions=True)
"""

_CONV = (
    "t, weight, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, pad_type='not_set'"
)
_CONV_HINTS = "available_memory_proportions=None, partials_types=None, enable_conv_dithering=None"
_POOL = (
    "t, kernel_size, stride=None, padding=None, out_pads=None, dilation=None, in_dilations=None, "
    "auto_pad='not_set', ceil_mode=None"
)
_UPDATE = (
    "acc_first_order, acc_second_order, weight=None, time_step=None, weight_decay=None, "
    "beta1=None, beta2=None, epsilon=1e-07"
)
_BRANCHES = (
    "cond, then_branch, else_branch, then_inputs=None, else_inputs=None, then_inputs_dict=None, "
    "else_inputs_dict=None"
)

OPS = f"""
average_pool({_POOL})
max_pool({_POOL}, storage_order=None)
call(graph, *inputs, inputs_dict=None)
call_with_info(graph, *inputs, inputs_dict=None, check_inputs=True)
repeat(graph, repeat_count, *inputs, inputs_dict=None)
repeat_with_info(graph, repeat_count, *inputs, inputs_dict=None, check_inputs=True)
conditional({_BRANCHES})
conditional_with_info({_BRANCHES}, check_inputs=True)
cast(t, data_type)
concat(ts, axis=0)
concat_(ts, axis=0)
conv({_CONV}, {_CONV_HINTS})
conv_transpose({_CONV}, output_padding=(), output_shape=(), {_CONV_HINTS})
argmax(t, dim=0, keepdim=False)
argmin(t, dim=0, keepdim=False)
batch_norm_inference(t, scale, bias, mean, var, epsilon=1e-05, momentum=0.9)
clip(t, min=float('-inf'), max=float('inf'))
clamp(t, min=float('-inf'), max=float('inf'))
cumsum(t, dim=0)
dropout(t, seed_tensor, p)
dynamic_slice(t, index, axes, sizes, no_overlap=False)
dynamic_update(t, index, t_update, axes, sizes, no_overlap=False)
dynamic_update_(t, index, t_update, axes, sizes, no_overlap=False)
gather(t, indices, axis=0, available_memory_proportion=None, zero_OOR=False)
tied_gather(t, indices, axis=0, available_memory_proportion=None, zero_OOR=False)
greater(input, other)
group_norm(t, weight, bias, num_groups, eps=1e-05)
layer_norm(t, weight, bias, eps=1e-05)
histogram(t, levels, absolute_of_input)
host_load(h2d_stream, name=None)
host_store(d2h_stream, t)
identity(t, output_name=None)
rename(t, output_name=None)
increment_mod(t, increment, modulus)
increment_mod_(t, increment, modulus)
init(shape, dtype, name=None, init_type='zero', meta_shape=None)
interpolate(t, scale_factor=(1.0, 1.0, 1.0, 1.0), mode='nearest', \
nearest_mode='round_prefer_floor', coordinate_transformation_mode='half_pixel')
lamb_square(t)
matmul(lhs, rhs, available_memory_proportion=None, output_type=None, partials_type=None)
maximum(*ts)
nll_loss(probs, labels, ignore_index=None, reduction='mean', log_prob=False)
nll_loss_with_softmax_grad(probs, labels, loss_grad=1, ignore_index=None, reduction='mean')
onehot(t, num_classes, values, axis)
pow(t, e)
print_tensor(t, title=None, print_self=True, print_gradient=False, summarize_threshold=1000, \
edge_items=3, max_line_width=75, digits=8, float_format='auto', separator=' ', open_bracket='[', \
close_bracket=']')
random_normal(seed_tensor, shape, mean=0.0, std=1.0, dtype=popxl.float32)
random_uniform(seed_tensor, shape, low=0.0, high=1.0, dtype=popxl.float32)
reshape(t, shape)
reshape_(t, shape)
roi_align(t, rois, batch_index, output_size, spatial_scale, sampling_ratio)
scaled_add(X, Y, a=1.0, b=1.0)
scaled_add_(X, Y, a=1.0, b=1.0)
scatter(t, indices, values, axis=0, available_memory_proportion=None)
scatter_reduce(data, indices, reduction, initial_values=None, axis=0, axis_size=None, \
available_memory_proportion=None)
shaped_dropout(t, seed_tensor, shape, ratio)
slice(t, start=None, stop=None, step=None, axis=None)
slice_(t, start=None, stop=None, step=None, axis=None)
softmax(t, axis)
split(t, splits, axis=0)
split_random_seed(seed, n=2)
squeeze(t, axes=None)
subsample(t, strides)
topk(t, k, axis, largest, sorted, available_memory_proportion=None)
transpose(t, permutation=None)
transpose_(t, permutation=None)
where(condition, lhs, rhs)
collectives.replica_sharded_slice(t, group=None)
collectives.replicated_all_gather(t, axis=0, group=None, output_shape='auto')
collectives.replicated_all_reduce(t, op='add', group=None)
collectives.replicated_all_reduce_(t, op='add', group=None)
collectives.replicated_all_reduce_identical_grad_inputs(t, op='add', group=None)
collectives.replicated_all_reduce_identical_inputs(t, op='add', group=None)
collectives.replicated_reduce_scatter(t, op='add', group=None, \
configure_output_for_replicated_tensor_sharding=False)
collectives.replicated_slice(t, axis=0, group=None)
var_updates.accumulate_(t, X, f=None)
var_updates.accumulate_square_(t, X, f=1.0)
var_updates.accumulate_mean_(t, X, step)
var_updates.accumulate_moving_average_(t, X, f)
var_updates.accumulate_moving_average_square_(t, X, f)
var_updates.accumulator_scale_(t, f)
var_updates.accumulator_zero_(t)
var_updates.copy_var_update_(t, X)
var_updates.sparse_accumulate_(t, X, indices, axis=0, f=None, W=None)
var_updates.adam_updater({_UPDATE})
var_updates.lamb_updater({_UPDATE})
var_updates.adamax_updater(acc_first_order, acc_second_order, weight=None, time_step=None, \
weight_decay=None, beta1=0.9, epsilon=1e-07)
var_updates.adam_var_update(t, x, r1, r2, learning_rate=None, max_weight_norm=None)
"""

OF_ONE = """abs ceil cos detach detach_ exp exp_ flatten flatten_ floor gelu gelu_ geluerf isfinite
isinf isnan log logical_not negate relu relu_ sign sin sqrt swish swish_ tanh"""

OF_TWO = "add add_ div equal fmod logical_and logical_or mul sub"

REDUCTIONS = "l1 l2 logsum logsumexp max mean median min prod sum sumsquare"

SIGNATURES = [
    *POPXL.strip().splitlines(),
    *(f"ops.{line}" for line in OPS.strip().splitlines()),
    *(f"ops.{name}(t)" for name in OF_ONE.split()),
    *(f"ops.{name}(lhs, rhs)" for name in OF_TWO.split()),
    *(f"ops.{name}(t, axis=None, keepdims=False)" for name in REDUCTIONS.split()),
]
"""Every function of the public interface that is here too, with `self` for a method's object."""

MEMBERS = {
    "popxl": """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 half float8_143 float8_152
        float16 float float32 double float64 complex64 complex128 Graph Ir Module Session Tensor
        TensorByRef TensorSpec HostToDeviceStream DeviceToHostStream ReplicaGrouping RemoteBuffer
        remote_buffer remote_variable remote_replica_sharded_variable replica_sharded_variable
        replica_sharded_buffer TensorStorage TensorLocation ReplicatedTensorSharding TileSet
        ExecutionContext context dtypes errors graph ir module ops random_seed replica_grouping
        session streams tensor transforms""",
    "Ir": "id main_graph num_host_transfers replication_factor instance_replication_factor",
    "Graph": """name id ir main_graph inputs outputs inputs_by_name tensors variables constants
        called_graphs""",
    "Session": "ir is_attached",
    "Tensor": """id name scope dtype shape meta_shape spec rank nelms strides T T_ ir ipu tile_set
        in_sync_with_ipu location_info copy_to_ipu""",
    "Variable": "replica_grouping retrieval_mode shape_on_replica shape_on_host",
    "ReplicaGrouping": """stride group_size num_groups assignment is_const const_rg to_device_map
        to_host_map""",
    "dtype": "name is_int is_floating_point is_complex is_signed",
    "context": "graph main_graph in_sequence name_scopes ipu_id io_tile_set",
    "ops": """PadType CallSiteInfo cast_then_pow2scale pow2scale_then_cast matmul_pow2scaled
        conv_pow2scaled conv_transpose_pow2scaled io_tile_copy ipu_copy remote_code_load remote_load
        remote_load_ remote_store""",
    "ops.collectives": """all_reduce all_reduce_identical_inputs all_reduce_identical_grad_inputs
        CommGroup CommGroupType""",
    "transforms": "merge_exchange io_tile_exchange GradGraphInfo ExpectedConnection",
}
"""Further public names, by what has them; those that are not here stand on the page."""

HINTS = {
    "available_memory_proportion": 0.3,
    "available_memory_proportions": [0.3],
    "check_inputs": False,
    "configure_output_for_replicated_tensor_sharding": True,
    "enable_conv_dithering": [1],
    "enable_index_broadcast": False,
    "log2_scale": 2,
    "meta_shape": (4, 3),
    "momentum": 0.5,
    "nan_on_overflow": True,
    "no_overlap": True,
    "partials_type": "half",
    "partials_types": ["half"],
    "retrieval_mode": "all_replicas",
    "storage_order": True,
}
"""Parameters that are taken and ignored, wherever a function has them, each with a value."""
