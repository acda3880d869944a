// rtl/memory.py's memory on an ECP5: slices as wide as one DP16KD is at this depth, so that no word is put together
// out of several rows. A read of the address being written gets anything: every user forwards what it needs.
module kvnode_ram #(parameter WIDTH = 1, DEPTH = 2, ADDRESS = 1) (
  input wire clk,
  input wire write_enable,
  input wire [ADDRESS-1:0] write_address,
  input wire [WIDTH-1:0] write_data,
  input wire [ADDRESS-1:0] read_address,
  output wire [WIDTH-1:0] read_data
);
  localparam SLICE = DEPTH <= 512 ? 36 : DEPTH <= 1024 ? 18 : DEPTH <= 2048 ? 9 : DEPTH <= 4096 ? 4 : DEPTH <= 8192 ? 2 : 1;
  genvar low;
  generate
    for (low = 0; low < WIDTH; low = low + SLICE) begin : slice
      localparam BITS = low + SLICE > WIDTH ? WIDTH - low : SLICE;
      (* no_rw_check *) reg [BITS-1:0] memory [0:DEPTH-1];
      reg [BITS-1:0] word;
      always @(posedge clk) begin
        if (write_enable) memory[write_address] <= write_data[low +: BITS];
        word <= memory[read_address];
      end
      assign read_data[low +: BITS] = word;
    end
  endgenerate
endmodule
