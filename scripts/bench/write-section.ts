import {readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'

const PAGE = join(import.meta.dirname, '../../docs/benchmarks.md')

/** Prints a section of `docs/benchmarks.md`, from its `## ` heading on; with `--write` it takes the place of the last one. */
export function publishSection(section: string): void {
  process.stdout.write(section)
  if (!process.argv.includes('--write')) return
  const heading = headingOf(section)
  const sections = readFileSync(PAGE, 'utf8')
    .split(/^(?=## )/m)
    .map((old) => (headingOf(old) === heading ? section : old))
  writeFileSync(PAGE, sections.join(''))
}

function headingOf(section: string): string {
  return section.slice(0, section.indexOf('\n'))
}
