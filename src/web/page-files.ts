import {basename, join, relative} from 'node:path'
import {lexer, type Token, type Tokens} from 'marked'
import {parse, YAMLParseError} from 'yaml'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {explainError} from '../core/errors.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {listFilesBelow} from '../store/files.ts'
import {listFiles, readSqlFile} from '../store/sql.ts'
import {capitalised} from './figures.ts'
import type {AskingView, View} from './view.ts'

/** Names that people may give to a page or query. */
export const NAME = /^[\w-]{1,100}$/

export const A_NAME = 'a name of letters, digits, _ and -'

export const listNamed = (folder: string, ending: '.md' | '.sql' | '.filter'): string[] =>
  listFiles(folder, ending)
    .map((file) => basename(file, ending))
    .filter((name) => NAME.test(name))
    .sort()

/** The shipped pages; those in subfolders have other addresses. */
export const SHIPPED = join(import.meta.dirname, '../../pages')

const FOLDERS = ['', 'parts/', 'behind/']

/** Pages over the state database. Own pages cannot replace them, since they read more than viewers may. */
export const OF_STATE = 'state/'

/** Beside own models, then in the data folder. A new page goes into the first. */
export const listPageDirs = ({sqlDir, dataDir}: Pick<Config, 'sqlDir' | 'dataDir'>): string[] => [
  ...(sqlDir === undefined ? [] : [join(sqlDir, 'pages')]),
  dataFolderAt(dataDir).pages,
]

/** An own page replaces a shipped page of the same name; the first folder wins. */
export function listPages(pageDirs: readonly string[]) {
  const pages = [...pageDirs, SHIPPED].flatMap((dir) => {
    const isOwn = dir !== SHIPPED
    return [...FOLDERS, ...(isOwn ? [] : [OF_STATE])].flatMap((folder) =>
      listNamed(join(dir, folder), '.md').map((file) => {
        const name = `${folder}${file}`
        return {name, path: join(dir, `${name}.md`), isOwn}
      }),
    )
  })
  return [...new Map(pages.toReversed().map((page) => [page.name, page])).values()].reverse()
}

/** Markdown in the folders of own pages that is no page, by its name or place. */
export const listStrays = (pageDirs: readonly string[]): string[] =>
  pageDirs.flatMap((dir) =>
    listFilesBelow(dir).filter((file) => {
      const [, folder = '', name = ''] = /^(.*\/)?(.*)\.md$/s.exec(relative(dir, file)) ?? []
      return /\.md$/i.test(file) && !(FOLDERS.includes(folder) && NAME.test(name))
    }),
  )

/** YAML between lines of `---` at the top. */
const frontMatter = z.strictObject({
  title: z.string().min(1).optional(),
  /** The place in the navigation, after ours. */
  order: z.number().optional(),
  for: z.literal('operators').optional(),
  /** Tables it cannot do without. */
  needs: z.array(z.string()).default([]),
})

export interface PageText {
  name: string
  about: z.output<typeof frontMatter>
  markdown: string
  line: number
  problems: string[]
}

export const wordProblem = (name: string, line: number, problem: string) =>
  `pages/${name}.md, line ${line}: ${problem}`

/** `given` replaces the text of the file. */
export function readPage({name, path}: {name: string; path: string}, given?: string): PageText {
  const page: PageText = {name, about: {needs: []}, markdown: '', line: 1, problems: []}
  const tell = (line: number, problem: string) => page.problems.push(wordProblem(name, line, problem))
  try {
    const text = (given ?? readSqlFile(path)).replaceAll(/\r\n?/g, '\n')
    const [whole = '', yaml = ''] = /^\s*---[ \t]*\n(.*?)(?<=\n)---[ \t]*(?:\n|$)/s.exec(text) ?? []
    if (whole === '' && /^\s*---/.test(text))
      tell(1, "front matter without an end: expected a line '---' after it")
    const lines = whole.split('\n')
    Object.assign(page, {markdown: text.slice(whole.length), line: lines.length})
    const {data, error} = frontMatter.safeParse(parse(yaml) ?? {})
    if (data) return {...page, about: data}
    for (const issue of error.issues) {
      const [key] = issue.code === 'unrecognized_keys' ? issue.keys : issue.path
      const line = lines.findIndex((one) => one.startsWith(`${String(key)}:`))
      tell(Math.max(line + 1, 1), `'${lines[line]}': ${issue.message}`)
    }
  } catch (error) {
    if (error instanceof YAMLParseError)
      tell(
        (error.linePos?.[0].line ?? 0) + 1,
        (error.message.split(' at line ')[0] ?? '').replace(
          /^Nested mappings.*/,
          'a second colon: a text that has one stands in quotes',
        ),
      )
    else tell(1, explainError(error).problem)
  }
  return page
}

export const needsOf = (name: string) => readPage({name, path: join(SHIPPED, `${name}.md`)}).about.needs

export const listShipped = (pageDirs: readonly string[]) =>
  listPages(pageDirs)
    .filter(({isOwn}) => !isOwn)
    .map((file) => ({...readPage(file), path: file.path}))

/** Own pages that the viewer may see. A page with broken front matter may be meant for operators, so only they see it. */
export const listOwn = ({pageDirs, mayAct}: Pick<View, 'pageDirs'> & Partial<Pick<AskingView, 'mayAct'>>) =>
  listPages(pageDirs)
    .filter(({isOwn}) => isOwn)
    .map((file) => readPage(file))
    .filter((page) => mayAct !== false || isForAll(page))
    .sort((a, b) => (a.about.order ?? Infinity) - (b.about.order ?? Infinity))

export const isForAll = ({about, problems}: PageText) => about.for === undefined && problems.length === 0

/** The first heading, which stands above the page. */
export const findHeading = (tokens: readonly Token[]) =>
  tokens.find((token): token is Tokens.Heading => token.type === 'heading' && token.depth === 1)

export const nameOf = ({name, about, markdown}: PageText) =>
  about.title ?? findHeading(lexer(markdown))?.text ?? capitalised(name.replaceAll('_', ' '))

export const listPlaces = (view: Parameters<typeof listOwn>[0]): [title: string, href: string][] =>
  listOwn(view).flatMap((page) =>
    page.about.order === undefined ? [] : [[nameOf(page), `/pages/${page.name}`]],
  )

export const beginPage = (name: string) =>
  readSqlFile(join(SHIPPED, 'first_page.md')).replaceAll('first_page', name)
