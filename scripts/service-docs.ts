import {ENDPOINTS} from '../src/contract/endpoints.ts'
import {PROBLEMS} from '../src/contract/problem.ts'

const TABLES: Record<string, () => string[]> = {
  endpoints: () => [
    '| request | answer | does |',
    '|---|---|---|',
    ...Object.values(ENDPOINTS).map(
      ({method, path, status, summary}) => `| \`${method} ${path}\` | ${status} | ${summary} |`,
    ),
  ],
  problems: () => [
    '| status | code | meaning |',
    '|---|---|---|',
    ...Object.entries(PROBLEMS).map(
      ([code, {status, meaning}]) => `| ${status} | \`${code}\` | ${meaning} |`,
    ),
  ],
}

/** The service's page with its tables of endpoints and problems as the contract has them. */
export function renderServicePage(page: string): string {
  return Object.entries(TABLES).reduce((text, [name, render]) => {
    const table = new RegExp(`(<!-- ${name} -->\n)(?:\n\\|.*(?:\n\\|.*)*\n)?`)
    return text.replace(table, (_, mark: string) => `${mark}\n${render().join('\n')}\n`)
  }, page)
}
