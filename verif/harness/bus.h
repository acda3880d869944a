// Master of the register bus (AXI4-Lite): one access at a time, in order. Address and data of a write are offered
// together and answers are taken at once, unless the access says otherwise.

#pragma once

#include "node.h"

class BusMaster {
public:
    void reset(Vnode& node) {
        start(nullptr, 0);
        address = data = false;
        held = late = 0;
        taking = false;
        drive(node);
        node.axi_wstrb = 0xF;
        node.axi_awprot = node.axi_arprot = 0;
        node.axi_bready = node.axi_rready = 1;
    }

    void start(Access* accesses_, uint64_t count_) {
        accesses = accesses_;
        count = count_;
        answered = 0;
        busy = taking = false;
        held = 0;
    }

    bool finished() const { return answered == count; }
    uint64_t done() const { return answered; }

    // Set the inputs of a cycle of the run; whether one of them changed.
    bool offer(Vnode& node, uint64_t run_cycle) {
        if (!busy) {
            if (finished() || run_cycle < accesses[answered].cycle) return drive(node);
            const Access& next = accesses[answered];
            busy = address = true;
            data = writing = next.is_write;
            late = next.late;
            held = next.hold;
            if (writing) {
                node.axi_awaddr = next.address;
                node.axi_wdata = next.data;
                node.axi_wstrb = next.strobe;
            } else {
                node.axi_araddr = next.address;
            }
        }
        return drive(node);
    }

    // Look at the outputs of a cycle; false if an answer came that was not asked for, or did not stand still.
    bool sample(const Vnode& node, uint64_t cycle) {
        if (!busy) return !(node.axi_bvalid | node.axi_rvalid);
        Access& access = accesses[answered];
        if (node.axi_awvalid ? node.axi_awready : node.axi_arvalid && node.axi_arready) {
            address = false;
            access.accepted_cycle = cycle;
        }
        if (node.axi_wvalid && node.axi_wready) {
            data = false;
            access.accepted_cycle = cycle;
        }
        if (late) late += late < 0 ? 1 : -1;
        if (!(node.axi_bvalid | node.axi_rvalid)) return !taking;
        if (address || data || (writing ? node.axi_rvalid : node.axi_bvalid)) return false;
        const uint32_t response = writing ? node.axi_bresp : node.axi_rresp;
        if (taking && (access.response != response || (!writing && access.data != node.axi_rdata))) return false;
        access.response = response;
        if (!writing) access.data = node.axi_rdata;
        if (held) {
            --held;
            taking = true;
            return true;
        }
        taking = false;
        access.answered_cycle = cycle;
        ++answered;
        busy = false;
        return true;
    }

private:
    bool drive(Vnode& node) {
        const bool write_address = address && writing && late >= 0, read_address = address && !writing;
        const bool write_data = data && late <= 0, ready = !(busy && held);
        const bool changed = node.axi_awvalid != write_address || node.axi_wvalid != write_data ||
                             node.axi_arvalid != read_address || node.axi_bready != ready;
        node.axi_awvalid = write_address;
        node.axi_wvalid = write_data;
        node.axi_arvalid = read_address;
        node.axi_bready = node.axi_rready = ready;
        return changed;
    }

    Access* accesses = nullptr;
    uint64_t count = 0, answered = 0;
    bool busy = false;                   // An access was begun and is not answered.
    bool writing = false;                // It is a write.
    bool address = false, data = false;  // Still to be accepted.
    bool taking = false;                 // An answer was seen and not taken; it must stay as it was.
    int32_t late = 0;                    // Cycles that the data still waits; negative: the address.
    uint32_t held = 0;                   // Cycles for which the answer is still not taken.
};
