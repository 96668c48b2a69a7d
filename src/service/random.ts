import {hash} from 'node:crypto'

/** A seeded source of numbers: the same labels give the same sequence on every machine. */
export type Random = ReturnType<typeof createRandom>

const ALPHABET = 'abcdefghijkmnpqrstuvwxyz23456789'

/** Creates the sequence of `labels` (a seed, a date, a purpose): sfc32 over the SHA-256 of the labels. */
export function createRandom(...labels: (string | number)[]) {
  const digest = hash('sha256', labels.join('\n'), 'buffer')
  let a = digest.readInt32LE(0)
  let b = digest.readInt32LE(4)
  let c = digest.readInt32LE(8)
  let counter = digest.readInt32LE(12)

  /** Uniform in [0, 1), 32 bits. */
  function next(): number {
    const sum = (a + b + counter) | 0
    counter = (counter + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return (sum >>> 0) / 2 ** 32
  }

  /** Uniform whole number from `min` to `max`, both included. */
  const integer = (min: number, max: number): number => min + Math.floor(next() * (max - min + 1))
  return {
    next,
    integer,
    /** True with this probability. */
    chance: (probability: number): boolean => next() < probability,
    /** One of the items, each as likely as the others. */
    pick: <T>(items: readonly [T, ...T[]]): T => items[integer(0, items.length - 1)] ?? items[0],
    /** Normal with mean 0 and standard deviation 1, within ±6. */
    normal(): number {
      let total = -6
      for (let draw = 0; draw < 12; draw++) total += next()
      return total
    },
    /** This many lower-case letters and digits. */
    text(length: number): string {
      let text = ''
      while (text.length < length) text += ALPHABET.charAt(integer(0, ALPHABET.length - 1))
      return text
    },
  }
}
