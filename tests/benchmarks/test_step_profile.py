"""The profile of a training step: kernels by kind; on a CPU, operators take the place of kernels."""

import re
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import Kernel, by_kind
from benchmarks.step_profile import main, measure, report
from benchmarks.training_cases import Case
from lightbert import ops
from lightbert.errors import InputError

STEP = Case("convbert-tiny", 2, 16, rtd=True)


def test_a_kernel_has_the_kind_of_its_name():
    for name, kind in (
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "matrix products"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", "attention"),
        ("attention_query_kernel", "attention"),
        ("_dynamic_conv_backward_kernel", "dynamic convolution"),
        ("_depthwise_combine_kernel", "depthwise convolution"),
        ("_residual_norm_forward_kernel", "residual and norm"),
        ("_cross_entropy_forward_kernel", "cross-entropy and sampling"),
        ("_embedding_backward_kernel", "embedding gradient"),
        ("triton_poi_fused__to_copy_add_2", "compiled"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", "optimizer"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("something_new", "other"),
    ):
        assert Kernel(name, 1.0, 1).kind == kind


def test_every_kernel_of_the_package_has_a_kind():
    sources = [path.read_text() for path in (Path(ops.__file__).parent / "kernels").glob("*.py")]
    names = [name for source in sources for name in re.findall(r"^def (\w+_kernel)\(", source, re.MULTILINE)]
    assert len(names) > 10
    assert len({*names}) == len(names)
    assert not [name for name in names if Kernel(name, 1.0, 1).kind == "other"]


def test_kernels_of_a_kind_are_added_and_the_longest_comes_first():
    kernels = [Kernel("flash_forward", 1.0, 2), Kernel("my_gemm", 2.0, 1), Kernel("flash_backward", 3.0, 4)]
    assert by_kind(kernels) == [Kernel("attention", 4.0, 6), Kernel("matrix products", 2.0, 1)]


def test_a_report_has_both_tables_and_the_least_time():
    text = report(STEP, [Kernel("flash_forward", 3000.0, 2), Kernel("gemm", 1000.0, 1)], (1e12, 1e12))
    assert "convbert-tiny 2×16, RTD step: 4.00 ms in kernels per step" in text
    assert "| attention | 3.000 | 75.0% | 2 |" in text
    assert "| flash_forward | 3.000 | 75.0% | 2 |" in text
    assert "The least time: " in text


def test_a_step_is_profiled():
    kernels = measure(STEP, torch.device("cpu"), steps=2)
    assert sum(kernel.microseconds for kernel in kernels) > 0
    assert "matrix products" in {kernel.kind for kernel in kernels}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_requires_a_gpu_and_a_known_case():
    with pytest.raises(InputError, match="requires a GPU"):
        main([])
    with pytest.raises(InputError, match="the cases are convbert-small"):
        main(["--cases", "gpt"])
