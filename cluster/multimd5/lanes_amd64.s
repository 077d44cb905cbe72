//go:build amd64 && !purego

#include "textflag.h"

// Each vector has one word of eight bodies: Y0 to Y3 are what RFC 1321 calls A to D, Y4 to
// Y19 the words of a block, Y20 to Y23 what A to D were before it, Y24 and Y25 are for what
// comes up.

// WORDS, DOUBLE and HALVES exchange what is in two vectors: words, pairs of words, and
// halves of the vectors.
#define WORDS(x, y) \
	VPUNPCKLDQ y, x, Y24; \
	VPUNPCKHDQ y, x, y; \
	VMOVDQA64  Y24, x

#define DOUBLE(x, y) \
	VPUNPCKLQDQ y, x, Y24; \
	VPUNPCKHQDQ y, x, y; \
	VMOVDQA64   Y24, x

#define HALVES(x, y) \
	VSHUFI32X4 $0x0, y, x, Y24; \
	VSHUFI32X4 $0x3, y, x, y; \
	VMOVDQA64  Y24, x

// STEP is a = b + ((a + f(b, c, d) + m + sine) <<< s), where f is a table of the bits of
// first, second and third: VPTERNLOGD looks up in it.
#define STEP(a, b, m, k, s, f, first, second, third) \
	VPADDD.BCST (k*4)(AX), a, a; \
	VMOVDQA64   first, Y25; \
	VPADDD      m, a, a; \
	VPTERNLOGD  f, third, second, Y25; \
	VPADDD      Y25, a, a; \
	VPROLD      s, a, a; \
	VPADDD      b, a, a

#define F(a, b, c, d, m, k, s) STEP(a, b, m, k, s, $0xCA, b, c, d)
#define G(a, b, c, d, m, k, s) STEP(a, b, m, k, s, $0xCA, d, b, c)
#define H(a, b, c, d, m, k, s) STEP(a, b, m, k, s, $0x96, b, c, d)
#define I(a, b, c, d, m, k, s) STEP(a, b, m, k, s, $0x39, b, c, d)

// ROW is what body i has next.
#define ROW(i, r, q) \
	MOVQ      (i*8)(SI), R8; \
	VMOVDQU64 (R8)(CX*1), r; \
	VMOVDQU64 32(R8)(CX*1), q

// sines are the constants of RFC 1321, 3.4: 2^32 times the sines of 1 to 64.
DATA sines<>+0(SB)/8, $0xe8c7b756d76aa478
DATA sines<>+8(SB)/8, $0xc1bdceee242070db
DATA sines<>+16(SB)/8, $0x4787c62af57c0faf
DATA sines<>+24(SB)/8, $0xfd469501a8304613
DATA sines<>+32(SB)/8, $0x8b44f7af698098d8
DATA sines<>+40(SB)/8, $0x895cd7beffff5bb1
DATA sines<>+48(SB)/8, $0xfd9871936b901122
DATA sines<>+56(SB)/8, $0x49b40821a679438e
DATA sines<>+64(SB)/8, $0xc040b340f61e2562
DATA sines<>+72(SB)/8, $0xe9b6c7aa265e5a51
DATA sines<>+80(SB)/8, $0x02441453d62f105d
DATA sines<>+88(SB)/8, $0xe7d3fbc8d8a1e681
DATA sines<>+96(SB)/8, $0xc33707d621e1cde6
DATA sines<>+104(SB)/8, $0x455a14edf4d50d87
DATA sines<>+112(SB)/8, $0xfcefa3f8a9e3e905
DATA sines<>+120(SB)/8, $0x8d2a4c8a676f02d9
DATA sines<>+128(SB)/8, $0x8771f681fffa3942
DATA sines<>+136(SB)/8, $0xfde5380c6d9d6122
DATA sines<>+144(SB)/8, $0x4bdecfa9a4beea44
DATA sines<>+152(SB)/8, $0xbebfbc70f6bb4b60
DATA sines<>+160(SB)/8, $0xeaa127fa289b7ec6
DATA sines<>+168(SB)/8, $0x04881d05d4ef3085
DATA sines<>+176(SB)/8, $0xe6db99e5d9d4d039
DATA sines<>+184(SB)/8, $0xc4ac56651fa27cf8
DATA sines<>+192(SB)/8, $0x432aff97f4292244
DATA sines<>+200(SB)/8, $0xfc93a039ab9423a7
DATA sines<>+208(SB)/8, $0x8f0ccc92655b59c3
DATA sines<>+216(SB)/8, $0x85845dd1ffeff47d
DATA sines<>+224(SB)/8, $0xfe2ce6e06fa87e4f
DATA sines<>+232(SB)/8, $0x4e0811a1a3014314
DATA sines<>+240(SB)/8, $0xbd3af235f7537e82
DATA sines<>+248(SB)/8, $0xeb86d3912ad7d2bb
GLOBL sines<>(SB), RODATA|NOPTR, $256

// func lanes(state *[4][width]uint32, from *[width]*byte, blocks int)
TEXT ·lanes(SB), NOSPLIT, $0-24
	MOVQ state+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ blocks+16(FP), DX
	LEAQ sines<>(SB), AX
	XORQ CX, CX

	VMOVDQU64 0(DI), Y0
	VMOVDQU64 32(DI), Y1
	VMOVDQU64 64(DI), Y2
	VMOVDQU64 96(DI), Y3

loop:
	TESTQ DX, DX
	JZ    done

	ROW(0, Y4, Y12)
	ROW(1, Y5, Y13)
	ROW(2, Y6, Y14)
	ROW(3, Y7, Y15)
	ROW(4, Y8, Y16)
	ROW(5, Y9, Y17)
	ROW(6, Y10, Y18)
	ROW(7, Y11, Y19)

	// A row, of which two vectors have half each, is of one body; what comes of it is a
	// word of all. Words 1 and 2 of four change places on the way.
	WORDS(Y4, Y5)
	WORDS(Y6, Y7)
	WORDS(Y8, Y9)
	WORDS(Y10, Y11)
	WORDS(Y12, Y13)
	WORDS(Y14, Y15)
	WORDS(Y16, Y17)
	WORDS(Y18, Y19)
	DOUBLE(Y4, Y6)
	DOUBLE(Y5, Y7)
	DOUBLE(Y8, Y10)
	DOUBLE(Y9, Y11)
	DOUBLE(Y12, Y14)
	DOUBLE(Y13, Y15)
	DOUBLE(Y16, Y18)
	DOUBLE(Y17, Y19)
	HALVES(Y4, Y8)
	HALVES(Y5, Y9)
	HALVES(Y6, Y10)
	HALVES(Y7, Y11)
	HALVES(Y12, Y16)
	HALVES(Y13, Y17)
	HALVES(Y14, Y18)
	HALVES(Y15, Y19)

	VMOVDQA64 Y0, Y20
	VMOVDQA64 Y1, Y21
	VMOVDQA64 Y2, Y22
	VMOVDQA64 Y3, Y23

	F(Y0, Y1, Y2, Y3, Y4, 0, $7)
	F(Y3, Y0, Y1, Y2, Y6, 1, $12)
	F(Y2, Y3, Y0, Y1, Y5, 2, $17)
	F(Y1, Y2, Y3, Y0, Y7, 3, $22)
	F(Y0, Y1, Y2, Y3, Y8, 4, $7)
	F(Y3, Y0, Y1, Y2, Y10, 5, $12)
	F(Y2, Y3, Y0, Y1, Y9, 6, $17)
	F(Y1, Y2, Y3, Y0, Y11, 7, $22)
	F(Y0, Y1, Y2, Y3, Y12, 8, $7)
	F(Y3, Y0, Y1, Y2, Y14, 9, $12)
	F(Y2, Y3, Y0, Y1, Y13, 10, $17)
	F(Y1, Y2, Y3, Y0, Y15, 11, $22)
	F(Y0, Y1, Y2, Y3, Y16, 12, $7)
	F(Y3, Y0, Y1, Y2, Y18, 13, $12)
	F(Y2, Y3, Y0, Y1, Y17, 14, $17)
	F(Y1, Y2, Y3, Y0, Y19, 15, $22)

	G(Y0, Y1, Y2, Y3, Y6, 16, $5)
	G(Y3, Y0, Y1, Y2, Y9, 17, $9)
	G(Y2, Y3, Y0, Y1, Y15, 18, $14)
	G(Y1, Y2, Y3, Y0, Y4, 19, $20)
	G(Y0, Y1, Y2, Y3, Y10, 20, $5)
	G(Y3, Y0, Y1, Y2, Y13, 21, $9)
	G(Y2, Y3, Y0, Y1, Y19, 22, $14)
	G(Y1, Y2, Y3, Y0, Y8, 23, $20)
	G(Y0, Y1, Y2, Y3, Y14, 24, $5)
	G(Y3, Y0, Y1, Y2, Y17, 25, $9)
	G(Y2, Y3, Y0, Y1, Y7, 26, $14)
	G(Y1, Y2, Y3, Y0, Y12, 27, $20)
	G(Y0, Y1, Y2, Y3, Y18, 28, $5)
	G(Y3, Y0, Y1, Y2, Y5, 29, $9)
	G(Y2, Y3, Y0, Y1, Y11, 30, $14)
	G(Y1, Y2, Y3, Y0, Y16, 31, $20)

	H(Y0, Y1, Y2, Y3, Y10, 32, $4)
	H(Y3, Y0, Y1, Y2, Y12, 33, $11)
	H(Y2, Y3, Y0, Y1, Y15, 34, $16)
	H(Y1, Y2, Y3, Y0, Y17, 35, $23)
	H(Y0, Y1, Y2, Y3, Y6, 36, $4)
	H(Y3, Y0, Y1, Y2, Y8, 37, $11)
	H(Y2, Y3, Y0, Y1, Y11, 38, $16)
	H(Y1, Y2, Y3, Y0, Y13, 39, $23)
	H(Y0, Y1, Y2, Y3, Y18, 40, $4)
	H(Y3, Y0, Y1, Y2, Y4, 41, $11)
	H(Y2, Y3, Y0, Y1, Y7, 42, $16)
	H(Y1, Y2, Y3, Y0, Y9, 43, $23)
	H(Y0, Y1, Y2, Y3, Y14, 44, $4)
	H(Y3, Y0, Y1, Y2, Y16, 45, $11)
	H(Y2, Y3, Y0, Y1, Y19, 46, $16)
	H(Y1, Y2, Y3, Y0, Y5, 47, $23)

	I(Y0, Y1, Y2, Y3, Y4, 48, $6)
	I(Y3, Y0, Y1, Y2, Y11, 49, $10)
	I(Y2, Y3, Y0, Y1, Y17, 50, $15)
	I(Y1, Y2, Y3, Y0, Y10, 51, $21)
	I(Y0, Y1, Y2, Y3, Y16, 52, $6)
	I(Y3, Y0, Y1, Y2, Y7, 53, $10)
	I(Y2, Y3, Y0, Y1, Y13, 54, $15)
	I(Y1, Y2, Y3, Y0, Y6, 55, $21)
	I(Y0, Y1, Y2, Y3, Y12, 56, $6)
	I(Y3, Y0, Y1, Y2, Y19, 57, $10)
	I(Y2, Y3, Y0, Y1, Y9, 58, $15)
	I(Y1, Y2, Y3, Y0, Y18, 59, $21)
	I(Y0, Y1, Y2, Y3, Y8, 60, $6)
	I(Y3, Y0, Y1, Y2, Y15, 61, $10)
	I(Y2, Y3, Y0, Y1, Y5, 62, $15)
	I(Y1, Y2, Y3, Y0, Y14, 63, $21)

	VPADDD Y20, Y0, Y0
	VPADDD Y21, Y1, Y1
	VPADDD Y22, Y2, Y2
	VPADDD Y23, Y3, Y3

	ADDQ $64, CX
	DECQ DX
	JMP  loop

done:
	VMOVDQU64 Y0, 0(DI)
	VMOVDQU64 Y1, 32(DI)
	VMOVDQU64 Y2, 64(DI)
	VMOVDQU64 Y3, 96(DI)
	VZEROUPPER
	RET
