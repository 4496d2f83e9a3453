# The first sector of the disk: reads the rest of the program behind it, enters 64-bit mode with
# the vector registers switched on, and jumps to the program. SECTORS: of the program. STATES: which
# registers (XCR0).
.code16
.globl _start
_start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7c00, %sp
    movw $SECTORS, %bp
read:                               # 32 sectors at a time, by the BIOS
    movb $0x42, %ah
    movb $0x80, %dl
    movw $packet, %si
    int $0x13
    addw $0x400, packet + 6
    addl $32, packet + 8
    subw $32, %bp
    jg read
    inb $0x92, %al                  # the line A20
    orb $2, %al
    outb %al, $0x92
    movl $0x1000, %edi              # page tables: the first GiB as it is, in pages of 2 MiB
    xorl %eax, %eax
    movl $0x3000 / 4, %ecx
    cld
    rep stosl
    movl $0x2003, 0x1000
    movl $0x3003, 0x2000
    movl $0x3000, %edi
    movl $0x83, %eax
    movw $512, %cx
page:
    movl %eax, (%di)
    addl $0x200000, %eax
    addw $8, %di
    loop page
    movl $0x1000, %eax
    movl %eax, %cr3
    movl %cr4, %eax
    orl $0x40620, %eax              # PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
    movl %eax, %cr4
    movl $0xC0000080, %ecx
    rdmsr
    orl $0x100, %eax                # long mode
    wrmsr
    lgdt table
    movl %cr0, %eax
    andl $~0x4, %eax
    orl $0x80000003, %eax
    movl %eax, %cr0
    ljmp $8, $wide
.code64
wide:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    xorl %ecx, %ecx
    movl $STATES, %eax
    xorl %edx, %edx
    xsetbv
    movq $0x9f000, %rsp
    movl $0x10000, %eax
    call *%rax
stop:
    hlt
    jmp stop
.align 4
packet:
    .byte 16, 0
    .word 32, 0, 0x1000
    .quad 1
entries:
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff
table:
    .word 23
    .long entries
.org 510
.word 0xaa55
