import {existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {beginBatch} from '../../src/export/batch.ts'

let parent: string
let final: string

beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), 'loantape-'))
  final = join(parent, 'batch')
})

afterEach(() => rmSync(parent, {recursive: true}))

function place(dir: string, text: string): void {
  mkdirSync(dir, {recursive: true})
  writeFileSync(join(dir, 'a.csv'), text)
}

const read = () => readFileSync(join(final, 'a.csv'), 'utf8')

test('a batch appears whole when finished, and not before; an unfinished one leaves what was there', () => {
  place(final, 'before')
  {
    using batch = beginBatch(final)
    place(batch.dir, 'unfinished')
  }
  expect(read()).toBe('before')
  {
    using batch = beginBatch(final)
    place(batch.dir, 'new')
    expect(read()).toBe('before')
    batch.finish(() => false)
  }
  expect(read()).toBe('new')
  expect(readdirSync(parent)).toEqual(['batch'])
})

test('a batch that another process has finished meanwhile stays', () => {
  {
    using batch = beginBatch(final)
    place(batch.dir, 'ours')
    place(final, 'theirs')
    batch.finish(() => existsSync(final))
  }
  expect(read()).toBe('theirs')
  expect(readdirSync(parent)).toEqual(['batch'])
})

test('a batch that another process finishes at that very moment stays', () => {
  {
    using batch = beginBatch(final)
    place(batch.dir, 'ours')
    place(final, 'torn')
    let asked = 0
    batch.finish(() => {
      // Between the first look and the move, the other one sets the torn batch aside, too, and puts its own in place.
      if (asked++ === 0) rmSync(batch.dir, {recursive: true})
      else place(final, 'theirs')
      return asked > 1
    })
  }
  expect(read()).toBe('theirs')
})

test('leftovers of dead exports are removed, work in progress of others is not', () => {
  place(join(parent, '.writing-other-999999999'), 'dead')
  place(join(parent, `.writing-other-${process.pid}`), 'dead, in a container of the same numbers')
  place(join(parent, `.writing-other-${process.ppid}`), 'alive')
  beginBatch(final)[Symbol.dispose]()
  expect(readdirSync(parent)).toEqual([`.writing-other-${process.ppid}`])
})
