import type {Random} from './random.ts'

/** City, postal code of its state, full name of its state, and the first three digits of its ZIP codes. */
type Place = readonly [city: string, state: string, stateName: string, zipPrefix: string]

const PLACES: readonly [Place, ...Place[]] = [
  ['Austin', 'TX', 'Texas', '787'],
  ['Houston', 'TX', 'Texas', '770'],
  ['Dallas', 'TX', 'Texas', '752'],
  ['San Antonio', 'TX', 'Texas', '782'],
  ['Miami', 'FL', 'Florida', '331'],
  ['Tampa', 'FL', 'Florida', '336'],
  ['Orlando', 'FL', 'Florida', '328'],
  ['Jacksonville', 'FL', 'Florida', '322'],
  ['Los Angeles', 'CA', 'California', '900'],
  ['San Diego', 'CA', 'California', '921'],
  ['Oakland', 'CA', 'California', '946'],
  ['Sacramento', 'CA', 'California', '958'],
  ['Atlanta', 'GA', 'Georgia', '303'],
  ['Savannah', 'GA', 'Georgia', '314'],
  ['Charlotte', 'NC', 'North Carolina', '282'],
  ['Raleigh', 'NC', 'North Carolina', '276'],
  ['Charleston', 'SC', 'South Carolina', '294'],
  ['Phoenix', 'AZ', 'Arizona', '850'],
  ['Tucson', 'AZ', 'Arizona', '857'],
  ['Denver', 'CO', 'Colorado', '802'],
  ['Nashville', 'TN', 'Tennessee', '372'],
  ['Memphis', 'TN', 'Tennessee', '381'],
  ['Columbus', 'OH', 'Ohio', '432'],
  ['Cleveland', 'OH', 'Ohio', '441'],
  ['Chicago', 'IL', 'Illinois', '606'],
  ['Indianapolis', 'IN', 'Indiana', '462'],
  ['Detroit', 'MI', 'Michigan', '482'],
  ['Philadelphia', 'PA', 'Pennsylvania', '191'],
  ['Pittsburgh', 'PA', 'Pennsylvania', '152'],
  ['Newark', 'NJ', 'New Jersey', '071'],
  ['Brooklyn', 'NY', 'New York', '112'],
  ['Buffalo', 'NY', 'New York', '142'],
  ['Boston', 'MA', 'Massachusetts', '021'],
  ['Hartford', 'CT', 'Connecticut', '061'],
  ['Baltimore', 'MD', 'Maryland', '212'],
  ['Richmond', 'VA', 'Virginia', '232'],
  ['Seattle', 'WA', 'Washington', '981'],
  ['Portland', 'OR', 'Oregon', '972'],
  ['Las Vegas', 'NV', 'Nevada', '891'],
  ['Salt Lake City', 'UT', 'Utah', '841'],
  ['Kansas City', 'MO', 'Missouri', '641'],
  ['St. Louis', 'MO', 'Missouri', '631'],
  ['Minneapolis', 'MN', 'Minnesota', '554'],
  ['New Orleans', 'LA', 'Louisiana', '701'],
  ['Birmingham', 'AL', 'Alabama', '352'],
  ['Washington', 'DC', 'District of Columbia', '200'],
  ['San Juan', 'PR', 'Puerto Rico', '009'],
]

const STREETS = [
  'Main St',
  'Oak Avenue',
  'Maple Drive',
  'Peachtree Rd NE',
  'W 14th Street',
  'Martin Luther King Jr Blvd',
  'Lakeshore Dr',
  'County Road 12',
  'Sunset Boulevard',
  'Cherry Ln',
  'Washington Avenue',
  'Riverside Parkway',
  'E Jefferson St',
  'Old Mill Ct',
  'Virginia Avenue',
  'Harbor View Terrace',
  'S Federal Hwy',
  'Elm Pl',
] as const

const UNITS = ['Apt', 'Unit', 'Suite', '#', 'Bldg'] as const

/** Text that only careful CSV and spreadsheet writers survive. */
const AWKWARD = [
  (number: number) => `${number} Calle José Martí, Peñuelas, PR 00624`,
  (number: number) => `${number} "The Foundry" Lofts, Unit 4, Durham, NC 27701`,
  (number: number) => `${number} O'Malley's Row; Rear Building, Lowell, MA 01852`,
  (number: number) => `Apt. "B", ${number} Café Señora Way, Santa Fé, NM 87501`,
  (number: number) => `=HYPERLINK("http://example.com/${number}","${number} Main St, Reno, NV 89501")`,
] as const

/** Places that only a survey knows: no state can be read from them. */
const NOWHERE = [
  (number: number) => `Parcel 12-0${number}-009`,
  (number: number) => `Lot ${number}, unrecorded plat off the old mill road`,
  (number: number) => `${number} Main Street`,
  () => 'TBD - address to follow',
  (number: number) => `Marina slip ${number} and adjoining land`,
] as const

function buildStreet(random: Random): string {
  if (random.chance(0.02))
    return `Lot ${random.integer(1, 90)} Block ${random.integer(1, 12)} Cedar Ridge Subdivision`
  const street = `${random.integer(1, 9_999)} ${random.pick(STREETS)}`
  if (!random.chance(0.15)) return street
  const unit = random.pick(UNITS)
  return `${street}, ${unit}${unit === '#' ? '' : ' '}${random.integer(1, 480)}`
}

function buildUsualAddress(random: Random): string {
  const [city, state, stateName, zipPrefix] = random.pick(PLACES)
  const street = buildStreet(random)
  const zip = `${zipPrefix}${String(random.integer(1, 99)).padStart(2, '0')}`
  const shape = random.next()
  if (shape < 0.5) return `${street}, ${city}, ${state} ${zip}`
  if (shape < 0.62) return `${street}, ${city}, ${state}`
  if (shape < 0.7) return `${street}, ${city}, ${state} ${zip}-${random.integer(1000, 9999)}`
  if (shape < 0.78) return `${street}, ${city}, ${stateName} ${zip}`
  if (shape < 0.82) return `${street}, ${city}, ${stateName}`
  if (shape < 0.88) return `${street}, ${city}, ${state} ${zip}, USA`
  if (shape < 0.93) return `${street}, ${city}, ${state} ${zip}`.toLowerCase()
  if (shape < 0.96) return `${street} ${city} ${state} ${zip}`
  if (shape < 0.98) return `${street},${city},${state}  ${zip}`
  return `${street}, ${city}, ${state.toLowerCase()}. ${zip}, United States`
}

/**
 * Makes up a US property address as people type them: with and without ZIP, full state names, lower case, units,
 * lots; about 3 % name no state, about 1 % hold quotes, accents or a spreadsheet formula.
 */
export function buildAddress(random: Random): string {
  const kind = random.next()
  if (kind < 0.01) return random.pick(AWKWARD)(random.integer(1, 999))
  if (kind < 0.04) return random.pick(NOWHERE)(random.integer(100, 999))
  return buildUsualAddress(random)
}
