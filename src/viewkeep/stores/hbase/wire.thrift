// The calls of HBase's Thrift server (its second interface) that viewkeep makes.
//
// On the wire a field is its number and its type, so the names of structs and fields are ours;
// those of the calls are HBase's. A field that we never set or read is left out.

struct Times {      // start <= timestamp < stop
  1: required i64 start
  2: required i64 stop
}

struct Column {     // without a qualifier: a whole family
  1: required binary family
  2: optional binary qualifier
  3: optional i64 timestamp
}

struct Cell {
  1: required binary family
  2: required binary qualifier
  3: required binary value
  4: optional i64 timestamp
  6: optional byte type
}

struct Row {        // without a key: there is none
  1: optional binary key
  2: required list<Cell> cells
  4: optional bool partial
}

enum Deletion {
  VERSION = 0         // of a cell, the one of exactly this timestamp
  CELLS = 1           // versions at or before the timestamp
  FAMILY = 2
  FAMILY_VERSION = 3  // of all cells of a family, the versions of exactly this timestamp
}

struct Get {
  1: required binary row
  2: optional list<Column> columns
  4: optional Times times
  5: optional i32 versions
  6: optional binary filter
  7: optional map<binary, binary> attributes
}

struct Put {
  1: required binary row
  2: required list<Cell> cells
  3: optional i64 timestamp
  5: optional map<binary, binary> attributes
}

struct Delete {     // without columns: the row
  1: required binary row
  2: optional list<Column> columns
  3: optional i64 timestamp
  4: optional Deletion kind
  6: optional map<binary, binary> attributes
}

struct Scan {
  1: optional binary start
  2: optional binary stop
  3: optional list<Column> columns
  4: optional i32 caching
  5: optional i32 versions
  6: optional Times times
  7: optional binary filter
  9: optional map<binary, binary> attributes
  11: optional bool reversed
  12: optional bool cache_blocks
  15: optional i32 limit
}

union Mutation {
  1: Put put
  2: Delete deletion
}

struct Mutations {
  1: required binary row
  2: required list<Mutation> mutations
}

enum Comparison {
  EQUAL = 2
}

struct Region {
  1: required i64 id
  2: required binary table
  3: optional binary start
  4: optional binary stop
  7: optional i32 replica
}

struct Server {
  1: required string host
  2: optional i32 port
  3: optional i64 began
}

struct RegionLocation {
  1: required Server server
  2: required Region region
}

struct TableName {
  1: optional binary space
  2: required binary qualifier
}

enum KeepDeleted {
  NO = 0
  YES = 1
  TTL = 2
}

struct Family {
  1: required binary name
  2: optional map<binary, binary> attributes
  3: optional map<string, string> configuration
  9: optional KeepDeleted keep_deleted
  10: optional i32 versions
  11: optional i32 least_versions
  12: optional i32 scope
  13: optional i32 seconds_to_live
}

struct Table {
  1: required TableName name
  2: optional list<Family> families
  3: optional map<binary, binary> attributes
  4: optional i32 durability
}

struct Namespace {
  1: required string name
}

exception ServerError {
  1: optional string message
  2: optional bool can_retry
}

exception BadArgument {
  1: optional string message
}

service HBase {
  Row get(1: binary table, 2: Get get) throws (1: ServerError error)
  list<Row> getMultiple(1: binary table, 2: list<Get> gets) throws (1: ServerError error)
  list<Row> getScannerResults(1: binary table, 2: Scan scan, 3: i32 rows)
    throws (1: ServerError error)
  void put(1: binary table, 2: Put put) throws (1: ServerError error)
  void putMultiple(1: binary table, 2: list<Put> puts) throws (1: ServerError error)
  list<Delete> deleteMultiple(1: binary table, 2: list<Delete> deletes)
    throws (1: ServerError error)
  void mutateRow(1: binary table, 2: Mutations mutations) throws (1: ServerError error)
  bool checkAndMutate(1: binary table, 2: binary row, 3: binary family, 4: binary qualifier,
      5: Comparison comparison, 6: binary value, 7: Mutations mutations)
    throws (1: ServerError error)
  list<RegionLocation> getAllRegionLocations(1: binary table) throws (1: ServerError error)
  bool tableExists(1: TableName name) throws (1: ServerError error)
  Table getTableDescriptor(1: TableName name) throws (1: ServerError error)
  list<TableName> getTableNamesByNamespace(1: string name) throws (1: ServerError error)
  void createTable(1: Table table, 2: list<binary> splits) throws (1: ServerError error)
  void deleteTable(1: TableName name) throws (1: ServerError error)
  void disableTable(1: TableName name) throws (1: ServerError error)
  void enableTable(1: TableName name) throws (1: ServerError error)
  void addColumnFamily(1: TableName name, 2: Family family) throws (1: ServerError error)
  void modifyColumnFamily(1: TableName name, 2: Family family) throws (1: ServerError error)
  void createNamespace(1: Namespace space) throws (1: ServerError error)
  void deleteNamespace(1: string name) throws (1: ServerError error)
  list<string> listNamespaces() throws (1: ServerError error)
}
