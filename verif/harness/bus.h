// Master of the register bus (AXI4-Lite): one access at a time, in order. Address and data of a write are offered
// together; answers are always taken at once.

#pragma once

#include "node.h"

class BusMaster {
public:
    void reset(Vnode& node) {
        start(nullptr, 0);
        address = data = false;
        drive(node);
        node.axi_wstrb = 0xF;
        node.axi_awprot = node.axi_arprot = 0;
        node.axi_bready = node.axi_rready = 1;
    }

    void start(Access* accesses_, uint64_t count_) {
        accesses = accesses_;
        count = count_;
        answered = 0;
        busy = false;
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
            if (writing) {
                node.axi_awaddr = next.address;
                node.axi_wdata = next.data;
            } else {
                node.axi_araddr = next.address;
            }
        }
        return drive(node);
    }

    // Look at the outputs of a cycle; false if an answer came that was not asked for.
    bool sample(const Vnode& node, uint64_t cycle) {
        if (!busy) return !(node.axi_bvalid | node.axi_rvalid);
        Access& access = accesses[answered];
        if (address && (writing ? node.axi_awready : node.axi_arready)) {
            address = false;
            access.accepted_cycle = cycle;
        }
        if (data && node.axi_wready) {
            data = false;
            access.accepted_cycle = cycle;
        }
        if (!(node.axi_bvalid | node.axi_rvalid)) return true;
        if (address || data || (writing ? node.axi_rvalid : node.axi_bvalid)) return false;
        access.response = writing ? node.axi_bresp : node.axi_rresp;
        if (!writing) access.data = node.axi_rdata;
        access.answered_cycle = cycle;
        ++answered;
        busy = false;
        return true;
    }

private:
    bool drive(Vnode& node) {
        const bool write_address = address && writing, read_address = address && !writing;
        const bool changed = node.axi_awvalid != write_address || node.axi_wvalid != data ||
                             node.axi_arvalid != read_address;
        node.axi_awvalid = write_address;
        node.axi_wvalid = data;
        node.axi_arvalid = read_address;
        return changed;
    }

    Access* accesses = nullptr;
    uint64_t count = 0, answered = 0;
    bool busy = false;                   // An access was begun and is not answered.
    bool writing = false;                // It is a write.
    bool address = false, data = false;  // Still to be accepted.
};
