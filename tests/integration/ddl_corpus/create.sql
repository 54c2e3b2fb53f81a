# title: attributes of columns
CREATE TABLE attributes (a INT NOT NULL, b INT NULL, c INT DEFAULT NULL, d INT NOT NULL DEFAULT 0, e INT COMMENT 'it''s', f INT UNIQUE, g INT UNIQUE KEY);
CREATE TABLE attributes_key (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT);
CREATE TABLE attributes_short_key (a INT KEY, b INT);
CREATE TABLE attributes_check (a INT CHECK (a > 0), b INT CONSTRAINT b_positive CHECK (b > 0 AND (b < 10 OR b IN (20,30))));
@mysql CREATE TABLE attributes_enforced (a INT CHECK (a > 0) NOT ENFORCED, b INT CONSTRAINT CHECK (b > 1) ENFORCED);
@mysql CREATE TABLE attributes_format (a INT COLUMN_FORMAT FIXED, b INT COLUMN_FORMAT DYNAMIC STORAGE DISK, c INT STORAGE MEMORY COLUMN_FORMAT DEFAULT);
CREATE TABLE attributes_engine (a INT ENGINE_ATTRIBUTE '{}', b INT SECONDARY_ENGINE_ATTRIBUTE = '{"a":1}', c INT NOT SECONDARY);
CREATE TABLE attributes_references (a INT REFERENCES attributes (d), b INT REFERENCES attributes (d) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE attributes_expression (a INT DEFAULT (1 + 2), b VARCHAR(40) DEFAULT (UUID()), c DATE DEFAULT (CURRENT_DATE), d DOUBLE DEFAULT (RAND() * (2 - 1)));
@mariadb CREATE TABLE attributes_bare_expression (a INT DEFAULT ABS(3), b VARCHAR(40) DEFAULT UUID(), c DATETIME DEFAULT (NOW() + INTERVAL 1 DAY), d INT DEFAULT (a * 2) NOT NULL, e VARCHAR(9) DEFAULT CONCAT('a', ',)') COMMENT 'x');
@mariadb CREATE TABLE attributes_case (a INT DEFAULT (CASE WHEN 1 > 2 THEN 3 ELSE 4 END), b INT DEFAULT (5 DIV 2) UNIQUE, c INT DEFAULT IFNULL(NULL, 3) COMMENT 'x');
CREATE TABLE attributes_order (a VARCHAR(5) COMMENT 'c' NOT NULL COLLATE utf8mb4_bin DEFAULT 'x', b INT DEFAULT 1 UNIQUE NOT NULL COMMENT '');

# title: generated and invisible columns
CREATE TABLE made (a INT, b INT GENERATED ALWAYS AS (a + 1) VIRTUAL, c INT AS (a * 2) STORED, d INT AS (a), e VARCHAR(9) AS (CONCAT('x', a)) VIRTUAL COMMENT 'd');
@mysql CREATE TABLE made_more (a INT, b INT GENERATED ALWAYS AS (a) STORED NOT NULL, c INT AS (a) VIRTUAL NULL UNIQUE, d INT AS (b) STORED PRIMARY KEY);
CREATE TABLE made_text (a VARCHAR(10), b VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin AS (UPPER(a)) VIRTUAL, c TEXT GENERATED ALWAYS AS (CONCAT(a, ')', ',')) STORED);
@mariadb CREATE TABLE made_persistent (a INT, b INT AS (a + 1) PERSISTENT, c INT AS (a) PERSISTENT UNIQUE COMMENT 'x');
CREATE TABLE hidden (a INT, b INT INVISIBLE, c INT NOT NULL DEFAULT 3 INVISIBLE COMMENT 'c');
@mysql CREATE TABLE hidden_visible (a INT VISIBLE, b INT /*!80023 INVISIBLE */);
ALTER TABLE hidden ADD d INT INVISIBLE AFTER a, MODIFY b INT;
@mysql ALTER TABLE hidden ALTER COLUMN c SET VISIBLE, ALTER a SET INVISIBLE;
INSERT INTO made (a) VALUES (1);
INSERT INTO hidden (a, b) VALUES (1, 2);
ALTER TABLE made DROP COLUMN e, ADD f INT GENERATED ALWAYS AS (a - 1) VIRTUAL FIRST;

# title: keys and constraints
CREATE TABLE keyed (a INT, b INT, c VARCHAR(20), PRIMARY KEY (b, a), KEY k1 (c), INDEX k2 (c(5), a), UNIQUE KEY k3 (a, c), UNIQUE (c, b));
CREATE TABLE keyed_order (a INT, b INT, PRIMARY KEY (b DESC, a ASC), KEY (a DESC));
CREATE TABLE keyed_typed (a INT, b INT, PRIMARY KEY USING BTREE (a), INDEX k USING BTREE (b), KEY k2 (b) USING BTREE COMMENT 'b' KEY_BLOCK_SIZE 4);
CREATE TABLE keyed_named (a INT, b INT, CONSTRAINT pk PRIMARY KEY (b), CONSTRAINT u UNIQUE INDEX u1 (a), CONSTRAINT UNIQUE (b, a), CONSTRAINT CHECK (a > 1), CONSTRAINT c1 CHECK (b <> 1), CHECK (a < b));
CREATE TABLE keyed_prefix (a VARCHAR(300), b BLOB, c TEXT, PRIMARY KEY (a(10)), KEY (b(20), c(5)));
CREATE TABLE keyed_text (a TEXT, b TEXT, FULLTEXT KEY f (a), FULLTEXT INDEX g (a, b), FULLTEXT (b));
@mysql CREATE TABLE keyed_expression (a INT, b JSON, KEY e1 ((a + 1)), KEY e2 ((CAST(b->'$.z' AS UNSIGNED ARRAY))), UNIQUE KEY e3 ((a * 2) DESC, a), INDEX ((ABS(a))));
@mysql INSERT INTO keyed_expression VALUES (1, '{}');
@mysql CREATE TABLE keyed_hidden (a INT, KEY k (a) INVISIBLE, KEY k2 (a) VISIBLE);
@mariadb CREATE TABLE keyed_ignored (a INT, KEY k (a) IGNORED, KEY k2 (a) NOT IGNORED);
CREATE TABLE keyed_foreign (a INT PRIMARY KEY, b INT, c INT, d INT, FOREIGN KEY (b) REFERENCES keyed (b), CONSTRAINT f2 FOREIGN KEY (c, d) REFERENCES keyed (b, a) ON DELETE CASCADE ON UPDATE NO ACTION, FOREIGN KEY f3 (d) REFERENCES attributes_none.t (x) ON DELETE SET NULL ON UPDATE RESTRICT);
CREATE TABLE keyed_foreign (a INT PRIMARY KEY, b INT, c INT, d INT, FOREIGN KEY (b) REFERENCES keyed (b), CONSTRAINT f2 FOREIGN KEY (c, d) REFERENCES keyed (b, a) ON DELETE CASCADE ON UPDATE NO ACTION);
CREATE TABLE keyed_words (`key` INT, `primary` INT, `index` INT, `check` INT, `unique` INT, PRIMARY KEY (`primary`, `key`), KEY `index` (`index`));
CREATE TABLE keyed_case (Id INT, NAME VARCHAR(5), PRIMARY KEY (iD, name));
CREATE TABLE keyed_late (PRIMARY KEY (z), a INT, KEY (a), z INT);
@mariadb CREATE TABLE keyed_period (a INT, s DATE, e DATE, PERIOD FOR p (s, e), PRIMARY KEY (a, p WITHOUT OVERLAPS));
@mariadb CREATE TABLE keyed_hash (a BLOB UNIQUE, b TEXT, UNIQUE (b) USING HASH);
@mariadb INSERT INTO keyed_hash VALUES ('a', 'b');

# title: options of tables
CREATE TABLE options_engine (a INT) ENGINE=InnoDB;
CREATE TABLE options_many (a INT PRIMARY KEY) ENGINE = InnoDB AUTO_INCREMENT = 10 AVG_ROW_LENGTH = 100 CHECKSUM = 1 COMMENT = 'a, (b)' DELAY_KEY_WRITE = 1 KEY_BLOCK_SIZE = 0 MAX_ROWS = 100 MIN_ROWS = 1 PACK_KEYS = DEFAULT ROW_FORMAT = DYNAMIC STATS_AUTO_RECALC = 1 STATS_PERSISTENT = 1 STATS_SAMPLE_PAGES = 20;
CREATE TABLE options_commas (a INT PRIMARY KEY) ENGINE=InnoDB, COMMENT='x', ROW_FORMAT=COMPACT, DEFAULT CHARSET=latin1, MAX_ROWS=5;
CREATE TABLE options_bare (a INT, b CHAR(1)) ENGINE InnoDB CHARSET latin1 COLLATE latin1_bin COMMENT 'x';
@mysql CREATE TABLE options_compression (a INT) COMPRESSION='zlib' ENCRYPTION='N' TABLESPACE=innodb_file_per_table;
@mysql CREATE TABLE options_attributes (a INT) AUTOEXTEND_SIZE=4M SECONDARY_ENGINE=NULL;
@mysql CREATE TABLE options_not_secondary (a INT, b INT NOT SECONDARY) SECONDARY_ENGINE = x;
CREATE TABLE options_memory (a INT, b VARCHAR(10)) ENGINE=MEMORY;
CREATE TABLE options_myisam (a INT, b VARCHAR(10)) ENGINE=MyISAM INSERT_METHOD=NO;
CREATE TABLE options_merge (a INT, b VARCHAR(10)) ENGINE=MERGE UNION=(options_myisam) INSERT_METHOD=LAST;
CREATE TABLE options_insert (a INT, b VARCHAR(10)) ENGINE=MERGE INSERT_METHOD=FIRST UNION=(options_myisam), COMMENT='REPLACE';
@mariadb CREATE TABLE options_page (a INT) PAGE_CHECKSUM=1 TRANSACTIONAL=1 ENGINE=Aria;
@mariadb CREATE TABLE options_compressed (a INT) PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=5 ENCRYPTED=NO;

# title: partitions
CREATE TABLE parts_hash (a INT, b INT) PARTITION BY HASH (a) PARTITIONS 4;
CREATE TABLE parts_linear (a INT, b INT) PARTITION BY LINEAR HASH (a + b) PARTITIONS 2;
CREATE TABLE parts_key (a INT PRIMARY KEY, b INT) PARTITION BY KEY () PARTITIONS 3;
CREATE TABLE parts_range (a INT, b INT) ENGINE=InnoDB PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20) COMMENT = 'x', PARTITION pm VALUES LESS THAN MAXVALUE);
CREATE TABLE parts_range_columns (a DATE, b VARCHAR(10)) PARTITION BY RANGE COLUMNS (a, b) (PARTITION p0 VALUES LESS THAN ('2020-01-01', 'm'), PARTITION p1 VALUES LESS THAN (MAXVALUE, MAXVALUE) ENGINE = InnoDB);
CREATE TABLE parts_list (a INT, b INT) PARTITION BY LIST (a) (PARTITION p0 VALUES IN (1, 2, NULL), PARTITION p1 VALUES IN (3));
CREATE TABLE parts_list_columns (a VARCHAR(5)) PARTITION BY LIST COLUMNS (a) (PARTITION p0 VALUES IN ('a', 'b'), PARTITION p1 VALUES IN ('c'));
CREATE TABLE parts_sub (a INT, b DATE) PARTITION BY RANGE (a) SUBPARTITION BY HASH (TO_DAYS(b)) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE);
CREATE TABLE parts_named (a INT, b INT) PARTITION BY RANGE (a) SUBPARTITION BY KEY (b) (PARTITION p0 VALUES LESS THAN (10) (SUBPARTITION s0, SUBPARTITION s1), PARTITION p1 VALUES LESS THAN (20) (SUBPARTITION s2, SUBPARTITION s3));
CREATE TABLE parts_comment (a INT, b CHAR(2)) DEFAULT CHARSET=latin1
/*!50100 PARTITION BY RANGE (a)
(PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB,
 PARTITION p1 VALUES LESS THAN MAXVALUE ENGINE = InnoDB) */;
@mariadb CREATE TABLE parts_time (a INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION pn CURRENT);

# title: LIKE, IF NOT EXISTS and temporary tables
CREATE TABLE model (a INT PRIMARY KEY, b VARCHAR(10) CHARACTER SET latin1, c ENUM('x','y'), KEY (b)) CHARSET ucs2;
CREATE TABLE copy1 LIKE model;
CREATE TABLE copy2 (LIKE model);
CREATE TABLE IF NOT EXISTS copy1 LIKE keyed_none;
CREATE TABLE IF NOT EXISTS copy3 LIKE model;
ALTER TABLE copy3 ADD d VARCHAR(5);
CREATE TABLE IF NOT EXISTS model (z INT);
CREATE TABLE IF NOT EXISTS fresh (z INT);
CREATE TABLE model (z INT);
CREATE TEMPORARY TABLE model (temporary INT);
CREATE TEMPORARY TABLE passing (a INT, b TEXT);
CREATE TABLE copy4 LIKE passing;
ALTER TABLE passing ADD c INT;
DROP TEMPORARY TABLE passing;
DROP TABLE model;
ALTER TABLE model ADD after_temporary INT;

# title: columns of a SELECT
CREATE TABLE source (a INT PRIMARY KEY, b VARCHAR(10) CHARACTER SET latin1, c DECIMAL(5,2), d ENUM('x'), e JSON, f TEXT);
CREATE TABLE selected AS SELECT * FROM source;
CREATE TABLE selected_bare SELECT a, b FROM source;
CREATE TABLE selected_more (z INT PRIMARY KEY AUTO_INCREMENT, KEY (a)) ENGINE=InnoDB SELECT a, CONCAT(b, 'x') AS c FROM source;
CREATE TABLE selected_over (a BIGINT UNSIGNED, y CHAR(2)) AS SELECT a, 1 + 1 AS two FROM source WHERE a IN (SELECT a FROM selected);
CREATE TABLE selected_time (t TIMESTAMP NOT NULL, u TIMESTAMP NULL, v TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3));
CREATE TABLE selected_times AS SELECT * FROM selected_time;
CREATE TABLE selected_charset CHARSET latin1 AS SELECT t, u FROM selected_time;
CREATE TABLE selected_ignored (a INT UNIQUE) IGNORE SELECT a FROM source;
CREATE TABLE selected_replaced (a INT UNIQUE) REPLACE AS SELECT a FROM source;
CREATE TABLE selected_union AS SELECT a, 'text' AS t FROM source UNION ALL SELECT 1, NULL;
CREATE TABLE selected_with AS WITH q AS (SELECT 1 AS one) SELECT * FROM q;
CREATE TABLE selected_parentheses (SELECT 1.5 AS n, NOW(3) AS t, x'00' AS b, ST_GeomFromText('POINT(1 1)') AS g);
CREATE TABLE IF NOT EXISTS selected SELECT 1 AS one;
@mysql CREATE TABLE selected_values AS VALUES ROW(1, 'a'), ROW(2, 'b');
@mysql CREATE TABLE selected_table TABLE source;
@mariadb CREATE TABLE selected_values AS VALUES (1, 'a'), (2, 'b');
@mariadb CREATE OR REPLACE TABLE selected AS SELECT b FROM source;
ALTER TABLE selected_bare ADD z VARCHAR(5), ADD PRIMARY KEY (a);

# title: names
CREATE TABLE `a b` (`c d` INT, `e``f` INT, `g.h` INT, `1` INT);
CREATE TABLE `ü` (`ä` INT, ö INT, `日本` VARCHAR(3));
CREATE TABLE 1st (1a INT, 2b INT, $c INT, d$ INT, _e INT);
CREATE TABLE `select` (`from` INT, `where` INT, date DATE, time TIME, timestamp TIMESTAMP NULL, text TEXT, bit BIT, enum ENUM('a'), value INT, status INT, type INT, period INT, comment INT, first INT, after INT);
ALTER TABLE `a b` ADD `i``j` INT AFTER `e``f`, DROP `1`, CHANGE `c d` `k l` INT;
ALTER TABLE `select` ADD first1 INT FIRST, MODIFY comment INT AFTER first, ADD COLUMN x INT AFTER `from`, DROP value;
ALTER TABLE 1st ADD 3c INT AFTER 1a;
CREATE TABLE{db}.qualified (a INT);
CREATE TABLE {db}.1qualified (a INT);
ALTER TABLE {db}.1qualified ADD {db}.`1qualified`.b INT;
ALTER TABLE {db}.1qualified ADD b INT, ADD PRIMARY KEY (a);
CREATE TABLE IF NOT EXISTS {db} . spaced ( a INT );
SET sql_mode = 'ANSI_QUOTES';
CREATE TABLE "quoted ""name" ("a b" INT, "c" VARCHAR(5) DEFAULT 'x"', `d` INT, PRIMARY KEY ("a b"));
ALTER TABLE "quoted ""name" CHANGE "a b" "e" BIGINT, ADD "f" ENUM('"','''') FIRST;
SET sql_mode = DEFAULT;

# title: comments
CREATE /* a */ TABLE /* b */ commented /* c */ (a INT /* d) */, -- e ),
 b INT # f, (
 /* , c INT */, d INT);
CREATE /*! TABLE */ commented_always (a INT /*! UNSIGNED */ /*!99999 , z INT */ /*!40101 NOT NULL */);
CREATE TABLE commented_versions (a INT /*!80023 COMMENT 'x' */, b INT /*!100100 COMMENT 'y' */ /*!50600 , c INT */ /*!50700 , d INT */ /*!90000 , e INT */ /*!100000 , f INT */);
CREATE TABLE commented_mariadb (a INT /*M! UNSIGNED */, b INT /*M!100201 , c INT */ /*M!999999 , d INT */);
CREATE TABLE commented_nested (a INT /*!99999 UNSIGNED /* inner */ , b INT */, c INT);
CREATE TABLE commented_twice (a INT /*!99999 UNSIGNED /* inner /* */ , b INT */, c INT) /*!99999 /* /* */ */ COMMENT '*/';
CREATE TABLE commented_of_mariadb (a INT /*M!99999 /* */ /* , z INT */, c INT);
CREATE TABLE commented_letters (a INT, /*!９９９９９９ INT, b INT) COMMENT '*/ c INT) -- ' */;
CREATE TABLE commented_delete (a INT DEFAULT 1 --', z INT
, b VARCHAR(9) DEFAULT '--', c INT);
SET sql_mode = 'ANSI_QUOTES';
CREATE TABLE "commented_\" ("a\" INT, "b""" INT) COMMENT '" (c INT)) -- ';
SET sql_mode = DEFAULT;
/* before */ ALTER TABLE commented /* x */ ADD /*! COLUMN */ g INT /* y */;
CREATE TABLE commented_minus (a INT DEFAULT (5--1), b INT);

# title: keys that the server makes
@mysql SET sql_generate_invisible_primary_key = ON;
@mysql CREATE TABLE made_key (a INT, b VARCHAR(5));
@mysql INSERT INTO made_key VALUES (1, 'x');
@mysql CREATE TABLE made_key_like LIKE made_key;
@mysql CREATE TABLE made_key_select AS SELECT 1 AS one;
@mysql ALTER TABLE made_key ADD c INT FIRST;
@mysql ALTER TABLE made_key MODIFY b VARCHAR(6) FIRST;
@mysql ALTER TABLE made_key ALTER my_row_id SET VISIBLE;
@mysql ALTER TABLE made_key ADD d INT FIRST;
@mysql INSERT INTO made_key (a) VALUES (2);
@mysql CREATE TABLE made_key_by_hand (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY INVISIBLE, a INT);
@mysql ALTER TABLE made_key_by_hand ADD b INT FIRST;
@mysql CREATE TABLE made_key_visible (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT);
@mysql ALTER TABLE made_key_visible ADD b INT FIRST;
@mysql SET sql_generate_invisible_primary_key = OFF;
@mysql ALTER TABLE made_key_like DROP PRIMARY KEY, DROP COLUMN my_row_id;
