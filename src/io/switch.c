/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context switch of fibers: by hand, because swapcontext() makes a system call for the signal mask each time.
 *
 * A context that does not run is one stack pointer; below it lie the registers that the ABI lets a callee keep, and the
 * control words of the floating-point unit. Layout of the saved frame, from the stack pointer upwards:
 *   x86_64   mxcsr and x87 control word (8 bytes), r15 r14 r13 r12 rbx rbp, return address
 *   aarch64  fpcr (16 bytes), d8..d15, x19..x28, x29 (frame), x30 (return address)
 * A new context returns into tarn_switch_start, which calls entry(arg) from two callee-saved registers and must never
 * come back from it.
 *
 * Threads: a context continues only on the thread that runs its loop.
 */
#include "io_internal.h"

void tarn_switch_start(void);

#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl tarn_switch_stack\n"
        ".hidden tarn_switch_stack\n"
        ".type tarn_switch_stack,@function\n"
        "tarn_switch_stack:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size tarn_switch_stack,.-tarn_switch_stack\n"
        ".p2align 4\n"
        ".globl tarn_switch_start\n"
        ".hidden tarn_switch_start\n"
        ".type tarn_switch_start,@function\n"
        "tarn_switch_start:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n"
        "    movq %r13, %rdi\n"
        "    xorl %ebp, %ebp\n"
        "    call *%r12\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size tarn_switch_start,.-tarn_switch_start\n");

#define FRAME_WORDS 8

void *tarn_switch_prepare(char *stack, size_t stack_bytes, void (*entry)(void *arg), void *arg)
{
    /* The ABI wants rsp + 8 to be a multiple of 16 at a function's first instruction; the start code calls, so that
     * its own rsp has to be a multiple of 16 once the frame is popped. */
    uintptr_t top = ((uintptr_t)stack + stack_bytes) & ~(uintptr_t)15;
    uint64_t *frame = (uint64_t *)(top - 16 - FRAME_WORDS * sizeof(uint64_t));
    uint32_t mxcsr;
    uint16_t fpu;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(fpu));
    frame[0] = (uint64_t)mxcsr | (uint64_t)fpu << 32;
    frame[1] = 0;                          /* r15 */
    frame[2] = 0;                          /* r14 */
    frame[3] = (uint64_t)(uintptr_t)arg;   /* r13 */
    frame[4] = (uint64_t)(uintptr_t)entry; /* r12 */
    frame[5] = 0;                          /* rbx */
    frame[6] = 0;                          /* rbp: the end of the chain for a debugger */
    frame[7] = (uint64_t)(uintptr_t)tarn_switch_start;
    return frame;
}

#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl tarn_switch_stack\n"
        ".hidden tarn_switch_stack\n"
        ".type tarn_switch_stack,%function\n"
        "tarn_switch_stack:\n"
        "    sub sp, sp, #176\n"
        "    mrs x9, fpcr\n"
        "    str x9, [sp, #0]\n"
        "    stp d8, d9, [sp, #16]\n"
        "    stp d10, d11, [sp, #32]\n"
        "    stp d12, d13, [sp, #48]\n"
        "    stp d14, d15, [sp, #64]\n"
        "    stp x19, x20, [sp, #80]\n"
        "    stp x21, x22, [sp, #96]\n"
        "    stp x23, x24, [sp, #112]\n"
        "    stp x25, x26, [sp, #128]\n"
        "    stp x27, x28, [sp, #144]\n"
        "    stp x29, x30, [sp, #160]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldr x9, [sp, #0]\n"
        "    msr fpcr, x9\n"
        "    ldp d8, d9, [sp, #16]\n"
        "    ldp d10, d11, [sp, #32]\n"
        "    ldp d12, d13, [sp, #48]\n"
        "    ldp d14, d15, [sp, #64]\n"
        "    ldp x19, x20, [sp, #80]\n"
        "    ldp x21, x22, [sp, #96]\n"
        "    ldp x23, x24, [sp, #112]\n"
        "    ldp x25, x26, [sp, #128]\n"
        "    ldp x27, x28, [sp, #144]\n"
        "    ldp x29, x30, [sp, #160]\n"
        "    add sp, sp, #176\n"
        "    ret\n"
        ".size tarn_switch_stack,.-tarn_switch_stack\n"
        ".p2align 4\n"
        ".globl tarn_switch_start\n"
        ".hidden tarn_switch_start\n"
        ".type tarn_switch_start,%function\n"
        "tarn_switch_start:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined x30\n"
        "    mov x0, x20\n"
        "    mov x29, xzr\n"
        "    mov x30, xzr\n"
        "    blr x19\n"
        "    brk #0\n"
        "    .cfi_endproc\n"
        ".size tarn_switch_start,.-tarn_switch_start\n");

#define FRAME_WORDS 22

void *tarn_switch_prepare(char *stack, size_t stack_bytes, void (*entry)(void *arg), void *arg)
{
    uintptr_t top = ((uintptr_t)stack + stack_bytes) & ~(uintptr_t)15;
    uint64_t *frame = (uint64_t *)(top - 16 - FRAME_WORDS * sizeof(uint64_t));
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    for (size_t i = 0; i < FRAME_WORDS; i++)
        frame[i] = 0;
    frame[0] = fpcr;
    frame[10] = (uint64_t)(uintptr_t)entry;             /* x19 */
    frame[11] = (uint64_t)(uintptr_t)arg;               /* x20 */
    frame[21] = (uint64_t)(uintptr_t)tarn_switch_start; /* x30 */
    return frame;
}

#else
#error "fibers need a context switch for this processor"
#endif
