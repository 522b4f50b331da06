"""Typical command lines of `nsys stats` and `nsys analyze`, one by one.

`gpu`, `nccl` and `mpi` are exports of reports, `threads` is one with threads that
wait for the device, `cpu` for a report. The lines are
from the help and the guides of Nsight Systems (G), from scripts of public
repositories (S), and made to have each option and each form once (O).
"""

STATS = (
    # G
    "stats gpu.sqlite", "stats --report cuda_gpu_trace gpu.sqlite",
    "stats --report cuda_gpu_trace --report cuda_gpu_kern_sum --report cuda_api_sum --format csv,column --output "
    ".,- gpu.sqlite",
    "stats --report cuda_api_sum --format table --output @'grep -E (-|Name|cudaFree)' gpu.sqlite",
    "stats --report cuda_api_sum --format csv --output @cat gpu.sqlite", "stats --report gputrace gpu.sqlite",
    "stats --report cuda_gpu_kern_sum:base --report cuda_gpu_kern_sum:nvtx-name:base gpu.sqlite",
    "stats --timeunit=seconds --report nvtx_pushpop_sum gpu.sqlite",
    "stats --filter-time 5s/9s --report cuda_api_sum gpu.sqlite",
    "stats --filter-time 7s400ms/ --report cuda_gpu_sum --format csv gpu.sqlite",
    "stats --filter-nvtx FusionExecutorCache::runFusionWithInputs/1 --report cuda_api_sum gpu.sqlite",
    # S
    "stats -q -r nvtx_sum,osrt_sum --format csv gpu.sqlite",
    "stats -r cuda_api_trace,nvtx_pushpop_trace --timeunit nsec -f csv -o out/base gpu.sqlite",
    "stats --force-overwrite true --report gputrace -q -f csv -o trace gpu.sqlite",
    "stats -o stem -r cudaapisum -r gpukernsum gpu.sqlite", "stats -r cuda_gpu_kern_sum -f csv -o . nccl.sqlite",
    "stats --report cuda_api_sum,cuda_gpu_kern_sum --format csv --force-export=true cpu.nsys-rep",
    "stats --force-export=true --report nvtx_sum,osrt_sum -f csv cpu.nsys-rep",
    "stats --report gputrace --format csv --output gputrace gpu.sqlite",
    "stats --report nvtxsum --format csv --output nvtxsum gpu.sqlite",
    "stats -r cuda_gpu_kern_sum,cuda_api_sum,cuda_gpu_mem_time_sum gpu.sqlite",
    "stats -f csv --report cuda_gpu_mem_size_sum -q gpu.sqlite", "stats mpi.sqlite -r mpi_event_trace --format json",
    "stats -r nvtx_gpu_proj_sum --format csv --output - gpu.sqlite",
    "stats --format json --report nvtx_gpu_proj_trace --report nvtx_kern_sum gpu.sqlite",
    # O
    "stats -rcuda_gpu_kern_sum -fcsv -q nccl.sqlite",
    "stats -r cuda_gpu_mem_size_sum -f csv:mem=B,csv:mem=KB,csv:mem=KiB,csv:mem=GiB gpu.sqlite",
    "stats -r cuda_gpu_mem_time_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_time_sum -f "
    "csv:time=us,tsv:dur=ms,json:dur=sec gpu.sqlite",
    "stats -r cuda_gpu_trace,cuda_gpu_trace -f csv:ts=us:bytes=KiB:nohdr,csv:thru=GiB:nohdrunit gpu.sqlite",
    "stats -r cuda_gpu_trace -f csv:noconv gpu.sqlite",
    "stats -r cuda_gpu_kern_sum,cuda_kern_exec_sum -f hdoc:title=Kernels,htable --timeunit ms gpu.sqlite",
    "stats -r cuda_gpu_kern_sum,cuda_api_sum -f column:colmax=30,table:nohdr:nofmt:colmax=0 gpu.sqlite",
    "stats -r cuda_gpu_kern_sum,cuda_api_sum -f column:autolines=1,table:20 gpu.sqlite",
    "stats -r cuda_gpu_kern_gb_sum,cuda_kern_exec_trace -f tsv,tsv:esc gpu.sqlite",
    "stats -r cuda_gpu_kern_sum,cuda_api_sum -f csv,json,. -o a,b gpu.sqlite",
    "stats -r cuda_api_gpu_sum -f csv,json,table gpu.sqlite", "stats -r cuda_gpu_kern_sum --filter-time 0/1 gpu.sqlite",
    "stats -r cuda_gpu_kern_sum,cuda_gpu_kern_sum,cuda_gpu_kern_sum --filter-time 0/1 -f csv,json,tsv gpu.sqlite",
    "stats -r osrt_sum,nvtx_sum,cuda_gpu_mem_time_sum --filter-time 6.5s/8e9 -f csv gpu.sqlite",
    "stats -r cuda_gpu_kern_sum --filter-nvtx nothing@nowhere gpu.sqlite",
    "stats -r cuda_api_sum,nvtx_pushpop_sum,cuda_api_trace --filter-nvtx plain/2 -f csv threads.sqlite",
    "stats -r nvtx_sum,cuda_gpu_kern_sum,osrt_sum --filter-nvtx FusionExecutorCache::runFusionWithInputs -f csv "
    "threads.sqlite",
    "stats -r um_sum,um_total_sum,openmp_sum,openacc_sum,vulkan_api_sum,dx12_pix_sum,network_congestion gpu.sqlite",
    "stats -r um_sum:rows=20,nvtx_startend_sum,nvtx_pushpop_sum gpu.sqlite",
    "stats -r nothing,cuda_api_sum:bad,cuda_gpu_kern_sum:base -f csv gpu.sqlite",
    "stats --report-dir . --report=cuda_api_sum gpu.sqlite",
)  # fmt: skip
ANALYZE = (
    # G
    "analyze gpu.sqlite",
    "analyze --rule cuda_memcpy_async --rule gpu_gaps gpu.sqlite",
    "analyze --rule=gpu_time_util:threshold=90:chunks=100 --timeunit=ms gpu.sqlite",
    # S
    "analyze -q -r gpu_gaps:gap=1:rows=-1 --format csv gpu.sqlite",
    "analyze -r gpu_gaps,gpu_time_util gpu.sqlite",
    "analyze -r gpu_gaps:gap=1:rows=5000 gpu.sqlite",
    # O
    (
        "analyze -r cuda_api_sync:rows=2,cuda_memcpy_async:rows=-1,cuda_memcpy_sync,cuda_memset_sync -f csv,json"
        " gpu.sqlite"
    ),
    "analyze -r gpu_gaps:gap=1,cuda_api_sync -o . gpu.sqlite",
    "analyze -r gpu-starv,cuda-sync-api,gpu-low-util -f csv gpu.sqlite",
    "analyze -r cuda_api_sync:process=50556:rows=-1 -f csv gpu.sqlite",
    "analyze -r cuda_api_sync:thread=1 -f csv gpu.sqlite",
    "analyze -r cuda_api_sync:start=8000000000:end=9000000000,cuda_memcpy_async:nvtx=nothing -f csv gpu.sqlite",
    "analyze -r cuda_api_sync --filter-time 8s/9s -f csv gpu.sqlite",
    "analyze -r cuda_api_sync --filter-nvtx plain -f csv threads.sqlite",
    "analyze -r cuda_api_sync:nvtx=plain:start=8500000000,cuda_api_sync:nvtx=plain:rows=1 -f csv threads.sqlite",
    "analyze -r cuda_api_sync --filter-nvtx FusionExecutorCache::runFusionWithInputs/1 -f csv threads.sqlite",
    "analyze -r nothing,gpu_gaps:gap=x -f csv gpu.sqlite",
    "analyze -r cuda_memcpy_async:rows=1 nccl.sqlite",
)
REFUSED = (
    "stats", "stats --bogus gpu.sqlite", "stats nowhere.sqlite", "stats gpu.sqlite mpi.sqlite", "stats --sqlite",
    "stats -r cuda_api_sum -f bogus gpu.sqlite", "stats -r cuda_api_sum --timeunit bogus gpu.sqlite",
    "stats -r cuda_api_sum --filter-time 2/1 gpu.sqlite", "stats -r cuda_api_sum --filter-time x gpu.sqlite",
    "stats --rep cuda_gpu_kern_sum gpu.sqlite", "stats -q true -r cuda_gpu_kern_sum gpu.sqlite",
    "stats --quiet=true -r cuda_gpu_kern_sum gpu.sqlite", "stats --sqlite other.sqlite gpu.sqlite",
    "stats gpu.sqlite -r", "analyze", "analyze --rules=gpu_gaps gpu.sqlite", "export gpu.sqlite",
    "export -t bogus gpu.sqlite", "export -t sqlite nowhere.nsys-rep", "export -t sqlite gpu.sqlite", "recipe nothing",
)  # fmt: skip
"""What both refuse, with one exit code."""
