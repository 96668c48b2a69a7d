/** Ids met so far, each in four to eight bytes: a million of them take 8 MB, in a Set a hundred. */
export interface SeenIds {
  /** Whether the id is new. One in thousands of new ones is taken for known when millions are. */
  add(id: string): boolean
  readonly size: number
}

const SMALLEST = 64

/** Creates an empty set of ids: 32-bit hashes in a table with open addressing, at most half full. */
export function createSeenIds(): SeenIds {
  let slots = new Uint32Array(SMALLEST)
  let size = 0

  /** The slot that holds the hash, or the free one where it belongs. */
  function findSlot(hash: number): number {
    let slot = hash % slots.length
    while (slots[slot] !== 0 && slots[slot] !== hash) slot = (slot + 1) % slots.length
    return slot
  }

  function grow(): void {
    const before = slots
    slots = new Uint32Array(before.length * 2)
    for (const hash of before) if (hash !== 0) slots[findSlot(hash)] = hash
  }

  return {
    get size() {
      return size
    },
    add(id) {
      const hash = hashOf(id)
      const slot = findSlot(hash)
      if (slots[slot] === hash) return false
      slots[slot] = hash
      size += 1
      if (size * 2 > slots.length) grow()
      return true
    },
  }
}

/** FNV-1a over the UTF-16 units, with the last mixing of MurmurHash3; never 0. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0 || 1
}
